// Translation, sentence by sentence, with the n best of each.

import { html, useEffect, useMemo, useState } from "../hooks.js";
import { useAnswers } from "../answer.js";
import { fixed, language, plural, whole } from "../format.js";
import { Frame } from "../frame.js";
import { CopyButton, Examples, Heads, ModelSelect, NumberField, Select, TextArea, chosen, modelId } from "../parts.js";

export const title = "Translate";
export const operation = "translate";
export const defaults = { text: "Guten Morgen! Wie geht es dir heute?", target: "", n_best: 3, beam_size: 5, model: "" };

const EXAMPLES = {
  de: [
    "Guten Morgen! Wie geht es dir heute?",
    "Der Zug fährt um 14:35 Uhr von Gleis 7.",
    "Ich habe gestern ein Buch gekauft. Es war nicht teuer. Kennst du es?",
  ],
  en: ["Good morning! How are you today?", "The train leaves at 2:35 pm from platform 7."],
};
const ABBREVIATION = /(^|[\s(])(\p{L}\.\s?)*(\p{Lu}|Dr|Prof|Hr|Fr|Nr|St|bzw|usw|ca|vgl|Mr|Mrs|Ms|vs|etc|z\.\s?B|d\.\s?h|e\.g|i\.e)\.\s*$/u;

// A text as sentences and the white space around them: [{before, text, space}].
export function sentences(text, code) {
  const found = [];
  let held = "";
  for (const { segment } of new Intl.Segmenter(code, { granularity: "sentence" }).segment(text)) {
    held += segment;
    if (ABBREVIATION.test(held) && !held.includes("\n")) continue;
    found.push(held);
    held = "";
  }
  return [...found, held].filter(Boolean).map((each) => {
    const text = each.trim();
    const start = text ? each.indexOf(text) : 0;
    return { before: each.slice(0, start), text, space: each.slice(start + text.length) };
  });
}

export const targetsOf = ({ languages }) => languages.targets ?? [languages.target];

export function View({ fields, update, models }) {
  const model = chosen(models, fields.model);
  const { source } = model.languages;
  const targets = targetsOf(model);
  const target = targets.includes(fields.target) ? fields.target : model.languages.target;
  const parts = sentences(fields.text, source);
  const asked = parts.filter((part) => part.text);
  const beams = Math.max(fields.beam_size, fields.n_best);
  const body = { text: asked.map((part) => part.text), n_best: fields.n_best, beam_size: beams, model: modelId(model) };
  if (target !== model.languages.target) body.target_language = target;
  const answers = useAnswers(asked.length ? [{ path: "v1/translate", body }] : [], fields.text);
  const results = answers.results?.[0].results;
  const [picked, setPicked] = useState({});
  useEffect(() => setPicked({}), [results]);
  const output = useMemo(() => (results ? joined(parts, results, picked) : ""), [results, picked]);
  const back = models.find((each) => each.languages.source === target && targetsOf(each).includes(source));
  const swap = () => update({ model: modelId(back), target: source, text: output || fields.text });
  return html`<div class="input">
      <div class="languages">
        <span class="language">${language(source)}</span>
        <button type="button" class="quiet" disabled=${!back} onClick=${swap} aria-label="Swap languages and texts"
          title=${back ? "Swap languages and texts" : `This server has no model from ${language(target)} to ${language(source)}`}>⇄</button>
        ${targets.length > 1
          ? html`<${Select} label="To" value=${target} options=${targets.map((code) => [code, language(code)])} onChange=${(code) => update({ target: code })} />`
          : html`<span class="language">${language(target)}</span>`}
        <${ModelSelect} models=${models} value=${modelId(model)} onChange=${(id) => update({ model: id, target: "" })} />
      </div>
      <div class="pair">
        <div>
          <${TextArea} label="Text" value=${fields.text} rows=${5} lang=${source} onInput=${(text) => update({ text })} />
          <p class="counter hint">${counted(fields.text, asked.length)}</p>
        </div>
        <div class="field">
          <span class="label-row"><label for="translation">Translation</label><${CopyButton} text=${output} label="Copy the translation" /></span>
          <textarea id="translation" class="output" rows="5" readonly lang=${target} value=${output} aria-busy=${answers.waiting ? "true" : "false"}></textarea>
        </div>
      </div>
      <${Examples} texts=${EXAMPLES[source] ?? []} lang=${source} onPick=${(text) => update({ text })} />
      <div class="controls">
        <${NumberField} label="Translations of each sentence" value=${fields.n_best} min=${1} max=${10} onChange=${(n_best) => update({ n_best })} />
        <${NumberField} label="Beam size" value=${fields.beam_size} min=${1} max=${20} onChange=${(beam_size) => update({ beam_size })} />
      </div>
    </div>
    <${Frame} answers=${answers} summary=${summary}>${([{ results: translated }]) => html`
      <h2>Sentence by sentence</h2>
      <p class="hint">A chosen translation becomes part of the text above. Scores are log-probabilities, divided by the length.</p>
      <ol class="sentences">${translated.map((result, place) => html`<${Sentence} key=${place} result=${result} place=${place}
        codes=${[source, target]} picked=${picked[place] ?? 0} pick=${(index) => setPicked((old) => ({ ...old, [place]: index }))} />`)}</ol>`}<//>`;
}

const counted = (text, count) => `${plural([...text].length, "character")}, ${plural(count, "sentence")}`;

// The translation of the whole text: of each sentence the picked one, with the white space of the source.
function joined(parts, results, picked) {
  let place = -1;
  return parts
    .map(({ before, text, space }) => before + (text ? (results[++place]?.translations[picked[place] ?? 0]?.text ?? "") : "") + space)
    .join("");
}

function summary([{ results }]) {
  const doubtful = results.filter((result) => result.low_confidence).length;
  return `${plural(results.length, "sentence")} translated${doubtful ? `, ${whole(doubtful)} with low confidence` : ""}.`;
}

function Sentence({ result, place, codes, picked, pick }) {
  const { text, translations, low_confidence: doubtful, detected_language: detected } = result;
  return html`<li>
    <p class="source" lang=${codes[0]}>${text}</p>
    ${doubtful && html`<p class="warning"><span aria-hidden="true">⚠</span> Low confidence: ${detected ? detectedText(detected, codes[0]) : "the translation is likely to be poor"}.</p>`}
    <table class="choices">
      <${Heads} names=${[`Translation of sentence ${place + 1}`, "Score"]} />
      <tbody>${translations.map((each, index) => html`<tr key=${index}>
        <th scope="row"><label><input type="radio" name=${`sentence-${place}`} checked=${index === picked} onChange=${() => pick(index)} />
          <span lang=${codes[1]}>${each.text}</span></label></th>
        <td class="number">${fixed(each.score)}</td>
      </tr>`)}</tbody>
    </table>
  </li>`;
}

const detectedText = (code, source) =>
  code === "und" ? `the text does not seem to be ${language(source)}` : `the text seems to be ${language(code)}, not ${language(source)}`;
