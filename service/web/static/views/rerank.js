// Texts in the order in which they answer a query.

import { html } from "../hooks.js";
import { useAnswers } from "../answer.js";
import { fixed } from "../format.js";
import { Frame } from "../frame.js";
import { Bars, ModelSelect, TextArea, chosen, lines, modelId } from "../parts.js";

export function View({ fields, update, models }) {
  const { query, texts } = fields;
  const model = chosen(models, fields.model);
  const text = lines(texts);
  const calls = query.trim() && text.length ? [{ path: "v1/rerank", body: { query, text, model: modelId(model) } }] : [];
  const answers = useAnswers(calls, query + texts);
  return html`<div class="input">
      <${TextArea} label="Query" value=${query} rows=${1} onInput=${(query) => update({ query })} />
      <${TextArea} label="Texts, one on each line" value=${texts} rows=${4} onInput=${(texts) => update({ texts })} />
      <div class="controls"><${ModelSelect} models=${models} value=${modelId(model)} onChange=${(id) => update({ model: id })} /></div>
    </div>
    <${Frame} answers=${answers} summary=${([{ results }]) => `Best text: ${ranked(results)[0].text}`}>
      ${([{ results }]) => html`<${Ranks} results=${ranked(results)} />`}<//>`;
}

const ranked = (results) => results.toSorted((one, other) => other.score - one.score);

function Ranks({ results }) {
  // Bars of scores that are no probabilities reach from the lowest one to the highest.
  const [most, least] = [results[0].score, results.at(-1).score];
  const share = least < 0 || most > 1 ? (score) => (score - least) / (most - least || 1) : (score) => score;
  const rows = results.map(({ text, score }) => ({ name: text, share: share(score), value: fixed(score, 4) }));
  return html`<figure><${Bars} names=${["Text", "Bar", "Score"]} rows=${rows} /></figure>`;
}
