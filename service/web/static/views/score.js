// Sentences next to each other, word by word: ranks among all words, and the difference of two models.

import { html } from "../hooks.js";
import { useAnswers } from "../answer.js";
import { fixed, plural } from "../format.js";
import { Frame } from "../frame.js";
import { Examples, ModelSelect, NumberField, TextArea, chosen, lines, modelId } from "../parts.js";
import { DifferentWords, RankedWords } from "../words.js";

const EXAMPLES = [
  "We had a very good time.\nWe had a very green time.",
  "He drinks coffee every morning.\nHe drinks every coffee morning.",
  "I have never been there.\nI has never been there.",
];

export function View({ fields, update, models }) {
  const model = chosen(models, fields.model);
  const others = models.filter((each) => each !== model);
  const other = others.find((each) => modelId(each) === fields.other);
  const compared = other ? [model, other] : [model];
  const text = lines(fields.text);
  const calls = compared.map((each) => ({
    path: "v1/score",
    body: { text, explain: true, top_k: fields.expected, model: modelId(each) },
  }));
  const answers = useAnswers(text.length ? calls : [], fields.text);
  const names = answers.calls.map((each) => each.body.model); // of the answers, which are older than the fields
  return html`<div class="input">
      <${TextArea} label="Sentences, one on each line" value=${fields.text} rows=${4} onInput=${(value) => update({ text: value })}
        hint="Most sentences end with punctuation: compare sentences that end alike." />
      <${Examples} texts=${EXAMPLES} onPick=${(value) => update({ text: value })} />
      <div class="controls">
        <${NumberField} label="Expected words shown" value=${fields.expected} min=${1} max=${20} onChange=${(expected) => update({ expected })} />
        <${ModelSelect} models=${models} value=${modelId(model)} onChange=${(id) => update({ model: id })} />
        ${others.length > 0 && html`<${ModelSelect} label="Difference to" models=${others} none="none" value=${fields.other}
          onChange=${(id) => update({ other: id })} />`}
      </div>
    </div>
    <${Frame} answers=${answers} summary=${summary}>${(results) => html`
      ${results.length === 1 && html`<${Legend} fields=${fields} update=${update} />`}
      <div class="cards">${results[0].results.map((result, place) => html`<article class="card" key=${place}>
        ${results.length === 1
          ? html`<${RankedWords} result=${result} thresholds=${[fields.top, fields.middle, fields.tail]} vocabulary=${model.vocab_size} />`
          : html`<${DifferentWords} first=${result} second=${results[1].results[place]} names=${names} />`}
        <${Total} results=${results.map((each) => each.results[place])} names=${names} />
      </article>`)}</div>`}<//>`;
}

function summary(results) {
  const [{ results: scored }] = results;
  if (results.length > 1) return `${plural(scored.length, "sentence")} scored by two models.`;
  const best = scored.reduce((most, each) => ((each.perplexity ?? Infinity) < (most.perplexity ?? Infinity) ? each : most));
  if (scored.length === 1) return `Perplexity ${fixed(best.perplexity)}.`;
  return `${plural(scored.length, "sentence")} scored. Lowest perplexity, ${fixed(best.perplexity)}: ${best.text}`;
}

function Total({ results, names }) {
  return html`<table class="total">
    <thead><tr>${results.length > 1 && html`<th scope="col">Model</th>`}<th scope="col" class="number">Log-probability</th>
      <th scope="col" class="number">Perplexity</th><th scope="col" class="number">Tokens</th></tr></thead>
    <tbody>${results.map((result, place) => html`<tr key=${names[place]}>
      ${results.length > 1 && html`<th scope="row">${names[place]}</th>`}
      <td class="number">${fixed(result.log_probability)}</td>
      <td class="number">${result.perplexity === null ? "∞" : fixed(result.perplexity)}</td>
      <td class="number">${result.tokens.length}</td>
    </tr>`)}</tbody>
  </table>`;
}

// The thresholds of the ranks, to be changed where they are explained.
function Legend({ fields, update }) {
  const steps = [
    ["top", 1, fields.middle - 1],
    ["middle", fields.top + 1, fields.tail - 1],
    ["tail", fields.middle + 1, 1_000_000],
  ];
  return html`<fieldset class="legend">
    <legend>Rank of each word among all words</legend>
    ${steps.map(([field, min, max], place) => html`<div class="control" key=${field}>
      <label for=${`rank-${field}`}><span class=${`token rank-${place}`}>up to</span></label>
      <input id=${`rank-${field}`} type="number" aria-label=${`Ranks of class ${place + 1}: up to`} value=${fields[field]} min=${min} max=${max}
        onInput=${(event) => event.target.value && event.target.validity.valid && update({ [field]: Number(event.target.value) })} />
    </div>`)}
    <span class="token rank-3">beyond</span>
  </fieldset>`;
}
