// The distribution of the next word, or a set of words; the weights of the mixture, and the entropy along the sentence.

import { html } from "../hooks.js";
import { useAnswers } from "../answer.js";
import { fixed, percent, plural, whole } from "../format.js";
import { Frame } from "../frame.js";
import { Bar, Bars, Examples, Heads, ModelSelect, NumberField, Select, TextArea, chosen, modelId } from "../parts.js";

const EXAMPLES = ["We had a very", "The train to Berlin is", "Would you like a cup of", "I don't", "Tom and Mary are"];
const LEVELS = ["0.5", "0.7", "0.8", "0.9"]; // coverages of sets of words
const STEPS = 24; // words of which the entropy is shown, the last ones

// The beginnings of a context, word by word, shortest first; the last is the whole.
export function beginnings(context, steps = STEPS) {
  const words = context.split(/\s+/).filter(Boolean);
  const first = Math.max(0, words.length - steps);
  return Array.from({ length: words.length - first + 1 }, (_, step) => words.slice(0, first + step).join(" "));
}

export const appended = (context, word) => `${context.trimEnd()}${/^[.,!?;:]$/.test(word) ? "" : " "}${word}`.trimStart();

export function View({ fields, update, models }) {
  const model = chosen(models, fields.model);
  // A search for words takes too long to repeat it after each word, and tells no entropy.
  const contexts = model?.task === "causal-language-model" ? [fields.context] : beginnings(fields.context);
  const coverage = model?.calibration_examples && LEVELS.includes(fields.coverage) ? Number(fields.coverage) : null;
  const asked = coverage ? { coverage } : { top_k: fields.words };
  const body = { context: contexts, ...asked, explain: true, model: modelId(model) };
  const answers = useAnswers([{ path: "v1/next-word", body }], fields.context);
  const append = (word) => update({ context: appended(fields.context, word) });
  return html`<div class="input">
      <${TextArea} label="Beginning of a sentence" value=${fields.context} rows=${2}
        onInput=${(context) => update({ context })} />
      <${Examples} texts=${EXAMPLES} onPick=${(context) => update({ context })} />
      <div class="controls">
        ${model?.calibration_examples && html`<${Select} label="Choose" value=${coverage ? fields.coverage : ""} options=${SETS} onChange=${(level) => update({ coverage: level })} />`}
        ${!coverage && html`<${NumberField} label="Words" value=${fields.words} min=${1} max=${100} onChange=${(words) => update({ words })} />`}
        <${ModelSelect} models=${models} value=${modelId(model)} onChange=${(id) => update({ model: id })} />
      </div>
    </div>
    <${Frame} answers=${answers} summary=${summary}>${([{ results }]) => html`<div class="columns">
      <${Distribution} result=${results.at(-1)} append=${append} coverage=${coverage} />
      <div>
        ${results.at(-1).entropy !== undefined && html`<${Entropy} results=${results} />`}
        <${Mixture} components=${results.at(-1).components} />
      </div>
    </div>`}<//>`;
}

const SETS = [["", "the most probable words"], ...LEVELS.map((level) => [level, `a set that holds the word, ${whole(100 * level)}\u00a0%`])];

const spelled = (word) => (word.sentence_end ? "the end of the sentence" : word.word);

function summary([{ results }]) {
  const { words, entropy } = results.at(-1);
  if (!words.length) return "No word has a probability above 0.";
  const most = `Most probable: ${spelled(words[0])}, ${percent(words[0].probability)}.`;
  return entropy === undefined ? most : `${most} Entropy ${fixed(entropy)} nats.`;
}

function caption({ words, calibration_examples: examples }, coverage) {
  if (!coverage) return "Next words. Choose one to append it.";
  return `A set of ${plural(words.length, "word")}: sets of this kind hold the next word of at least ${whole(100 * coverage)}\u00a0% of the texts, by ${whole(examples)} calibration examples. Choose a word to append it.`;
}

function Distribution({ result, append, coverage }) {
  const { words, unknown, unknown_probability: outside, unit } = result;
  const most = words[0]?.probability ?? 1;
  const rest = 1 - outside - words.reduce((sum, word) => sum + word.probability, 0);
  return html`<figure>
    <figcaption>${caption(result, coverage)}</figcaption>
    <table class="bars">
      <${Heads} names=${["Word", "Bar", "Probability"]} />
      <tbody>
        ${words.map((word, place) => html`<tr key=${place}>
          <th scope="row">${word.sentence_end
            ? html`<span class="muted">end of sentence</span>`
            : html`<button type="button" class="word" onClick=${() => append(word.word)}>${word.word}</button>`}</th>
          <td class="wide"><${Bar} share=${word.probability / most} /></td>
          <td class="number">${percent(word.probability)}</td>
        </tr>`)}
        ${rest > 5e-5 && html`<tr class="muted"><th scope="row" colspan="2">all other words</th><td class="number">${percent(rest)}</td></tr>`}
        ${!unit && html`<tr class="muted"><th scope="row" colspan="2">words outside the vocabulary</th><td class="number">${percent(outside)}</td></tr>`}
      </tbody>
    </table>
    ${unknown.length > 0 && html`<p class="hint">Not in the vocabulary, read as an unknown word: ${unknown.join(", ")}.</p>`}
  </figure>`;
}

const component = ({ kernel, weight }) => ({ name: html`<code>${kernel}</code>`, share: weight, value: percent(weight) });

function Mixture({ components }) {
  if (!components) return null;
  return html`<figure>
    <figcaption>Weight of each component of the mixture in this context</figcaption>
    <${Bars} names=${["Kernel", "Bar", "Weight"]} rows=${components.map(component)} />
  </figure>`;
}

function Entropy({ results }) {
  const steps = results.map(({ context, entropy }) => ({ word: context.split(" ").at(-1) || "start", entropy }));
  const most = Math.max(1, ...steps.map((step) => step.entropy));
  return html`<figure>
    <figcaption>Entropy of the next word after each word, in nats: low where the model is sure</figcaption>
    <div class="profile" tabindex="0" role="img" aria-label="Entropy after each word; the table below has the numbers">
      ${steps.map(({ word, entropy }, place) => html`<span class="step" key=${place}>
        <span class="value">${fixed(entropy, 1)}</span>
        <span class="column"><span class="rise" style=${{ blockSize: `${(100 * entropy) / most}%` }}></span></span>
        <span class="after">${word}</span>
      </span>`)}
    </div>
    <details><summary>As a table</summary>
      <table>
        <thead><tr><th scope="col">After</th><th scope="col" class="number">Entropy</th></tr></thead>
        <tbody>${steps.map(({ word, entropy }, place) => html`<tr key=${place}>
          <th scope="row">${word}</th><td class="number">${fixed(entropy)}</td></tr>`)}</tbody>
      </table>
    </details>
  </figure>`;
}
