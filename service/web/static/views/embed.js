// The similarities of texts: the cosines of their vectors, two by two.

import { html } from "../hooks.js";
import { useAnswers } from "../answer.js";
import { fixed, plural } from "../format.js";
import { Frame } from "../frame.js";
import { ModelSelect, TextArea, chosen, lines, modelId } from "../parts.js";

const MOST = 12; // texts of the table

export function View({ fields, update, models }) {
  const model = chosen(models, fields.model);
  const text = lines(fields.texts).slice(0, MOST);
  const calls = text.length ? [{ path: "v1/embed", body: { text, normalize: true, model: modelId(model) } }] : [];
  const answers = useAnswers(calls, fields.texts);
  return html`<div class="input">
      <${TextArea} label="Texts, one on each line" value=${fields.texts} rows=${4} onInput=${(texts) => update({ texts })}
        hint=${`The first ${MOST} lines are compared.`} />
      <div class="controls"><${ModelSelect} models=${models} value=${modelId(model)} onChange=${(id) => update({ model: id })} /></div>
    </div>
    <${Frame} answers=${answers} summary=${summary}>${([{ results }]) => html`<${Similarities} texts=${answers.calls[0].body.text} results=${results} />`}<//>`;
}

const summary = ([{ results }]) => `${plural(results.length, "vector")} of ${plural(results[0].embedding.length, "dimension")}.`;

const cosine = (one, other) => one.embedding.reduce((sum, value, place) => sum + value * other.embedding[place], 0);

function Similarities({ texts, results }) {
  return html`<figure>
    <figcaption>Cosine of the vectors of two texts: 1 for the same direction</figcaption>
    <div class="scroll" tabindex="0" role="region" aria-label="Similarities"><table class="plain">
      <thead><tr><td></td>${texts.map((_, place) => html`<th scope="col" class="number" key=${place}>${place + 1}</th>`)}</tr></thead>
      <tbody>${results.map((one, row) => html`<tr key=${row}><th scope="row">${row + 1}. ${texts[row]}</th>
        ${results.map((other, column) => {
          const value = cosine(one, other);
          return html`<td key=${column} class="number cosine" style=${{ "--strength": `${Math.max(0, Math.round(45 * value))}%` }}>${fixed(value)}</td>`;
        })}</tr>`)}</tbody>
    </table></div>
  </figure>`;
}
