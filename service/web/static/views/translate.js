// Translation, sentence by sentence, with the n best of each.

import { html, useContext, useEffect, useMemo, useState } from "../hooks.js";
import { Service, useAnswers } from "../answer.js";
import { call } from "../api.js";
import { fixed, language, plural, whole } from "../format.js";
import { Frame } from "../frame.js";
import { CopyButton, Examples, Heads, ModelSelect, NumberField, Select, TextArea, chosen, modelId } from "../parts.js";

const EXAMPLES = {
  de: [
    "Guten Morgen! Wie geht es dir heute?",
    "Der Zug fährt um 14:35 Uhr von Gleis 7.",
    "Ich habe gestern ein Buch gekauft. Es war nicht teuer. Kennst du es?",
  ],
  en: ["Good morning! How are you today?", "The train leaves at 2:35 pm from platform 7."],
};
const ABBREVIATION = /(^|[\s(])(\p{L}\.\s?)*(\p{Lu}|Dr|Prof|Hr|Fr|Nr|St|bzw|usw|ca|vgl|Mr|Mrs|Ms|vs|etc|z\.\s?B|d\.\s?h|e\.g|i\.e)\.\s*$/u;

const LEVELS = ["0.9", "0.92", "0.94", "0.95"]; // coverages of sets of translations
const SETS = [["", "the best"], ...LEVELS.map((level) => [level, `a set that holds an acceptable one, ${whole(100 * level)}\u00a0%`])];

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

// The pairs of a model's source language through a third language: [{code, via, models}].
function routesOf(model, offered) {
  const pairs = offered?.languages.find((each) => each.code === model.languages.source)?.targets ?? [];
  return pairs.filter((each) => each.via && !targetsOf(model).includes(each.code));
}

export function View({ fields, update, models }) {
  const offered = useLanguages(models);
  const preset = offered?.default_target ?? null;
  const reaches = (each) => targetsOf(each).includes(preset) || routesOf(each, offered).some(({ code }) => code === preset);
  const model = fields.model ? chosen(models, fields.model) : (models.find(reaches) ?? models[0]);
  const { source } = model.languages;
  const direct = targetsOf(model);
  const routes = routesOf(model, offered);
  const targets = [...direct, ...routes.map((each) => each.code)];
  const target = [fields.target, fields.model ? null : preset].find((code) => targets.includes(code)) ?? model.languages.target;
  const route = routes.find((each) => each.code === target);
  const parts = sentences(fields.text, source);
  const asked = parts.filter((part) => part.text);
  const sets = model.calibration_examples && !route && target === model.languages.target;
  const coverage = sets && LEVELS.includes(fields.coverage) ? Number(fields.coverage) : null;
  const beams = Math.max(fields.beam_size, fields.n_best);
  const languages = route ? { source_language: source, target_language: target } : { model: modelId(model) };
  if (!route && target !== model.languages.target) languages.target_language = target;
  const search = coverage ? { coverage } : { n_best: fields.n_best, beam_size: beams };
  const body = { text: asked.map((part) => part.text), ...search, ...languages };
  const used = route ? route.models : [modelId(model)];
  if (used.every((id) => models.find((each) => modelId(each) === id)?.alignment)) body.alignment = true;
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
          ? html`<${Select} label="To" value=${target} options=${targets.map((code) => [code, named(code, routes)])} onChange=${(code) => update({ target: code })} />`
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
      ${offered?.documents && html`<${DocumentForm} fields=${languages} />`}
      <${Examples} texts=${EXAMPLES[source] ?? []} lang=${source} onPick=${(text) => update({ text })} />
      <div class="controls">
        ${sets && html`<${Select} label="Choose" value=${coverage ? fields.coverage : ""} options=${SETS} onChange=${(level) => update({ coverage: level })} />`}
        ${!coverage && html`<${NumberField} label="Translations of each sentence" value=${fields.n_best} min=${1} max=${10} onChange=${(n_best) => update({ n_best })} />
        <${NumberField} label="Beam size" value=${fields.beam_size} min=${1} max=${20} onChange=${(beam_size) => update({ beam_size })} />`}
      </div>
    </div>
    <${Frame} answers=${answers} summary=${summary}>${([{ results: translated }]) => html`
      <h2>Sentence by sentence</h2>
      ${coverage && html`<p class="hint">${covered(translated[0], coverage)}</p>`}
      <p class="hint">A chosen translation becomes part of the text above. Words that stand for each other are marked together. Scores are log-probabilities, divided by the length.</p>
      <ol class="sentences">${translated.map((result, place) => html`<${Sentence} key=${place} result=${result} place=${place}
        codes=${[source, target]} picked=${picked[place] ?? 0} pick=${(index) => setPicked((old) => ({ ...old, [place]: index }))} />`)}</ol>`}<//>`;
}

const named = (code, routes) => {
  const via = routes.find((each) => each.code === code)?.via;
  return via ? `${language(code)}, through ${language(via)}` : language(code);
};

// The language pairs of the service: {languages, default_target, documents}; null before they are known.
function useLanguages(models) {
  const { key } = useContext(Service);
  const [found, setFound] = useState(null);
  useEffect(() => {
    call("v1/languages").then(({ body }) => setFound(body), () => setFound(null));
  }, [key, models.map(modelId).join()]);
  return found;
}

// The form of `document.js`, which is loaded where the service translates documents.
function DocumentForm({ fields }) {
  const Form = useModule(() => import("./document.js"), "DocumentForm");
  return Form && html`<${Form} fields=${fields} />`;
}

// Something of a module, null until that is loaded.
function useModule(load, name) {
  const [found, setFound] = useState(null);
  useEffect(() => void load().then((module) => setFound(() => module[name]), () => {}), []);
  return found;
}

const counted = (text, count) => `${plural([...text].length, "character")}, ${plural(count, "sentence")}`;

// The translation of the whole text: of each sentence the picked one, with the white space of the source.
function joined(parts, results, picked) {
  let place = -1;
  return parts
    .map(({ before, text, space }) => before + (text ? (results[++place]?.translations[picked[place] ?? 0]?.text ?? "") : "") + space)
    .join("");
}

const covered = ({ calibration_examples: examples }, coverage) =>
  `The translations of a sentence are a set: sets of this kind hold an acceptable translation of at least ${whole(100 * coverage)}\u00a0% of the sentences, by ${whole(examples)} calibration examples.`;

function summary([{ results }]) {
  const doubtful = results.filter((result) => result.low_confidence).length;
  return `${plural(results.length, "sentence")} translated${doubtful ? `, ${whole(doubtful)} with low confidence` : ""}.`;
}

function Sentence({ result, place, codes, picked, pick }) {
  const Linked = useModule(() => import("./alignment.js"), "Linked");
  const { alignment, text: translation } = result.translations[picked] ?? result.translations[0];
  const { text, translations, low_confidence: doubtful, detected_language: detected } = result;
  return html`<li>
    ${alignment && Linked
      ? html`<${Linked} text=${text} translation=${translation} links=${alignment} codes=${codes} />`
      : html`<p class="source" lang=${codes[0]}>${text}</p>`}
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
