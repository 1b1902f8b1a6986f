// The entities of a text: marked in the text, and as a table.

import { html } from "../hooks.js";
import { useAnswers } from "../answer.js";
import { percent } from "../format.js";
import { Frame } from "../frame.js";
import { ModelSelect, Select, TextArea, chosen, modelId } from "../parts.js";

const AGGREGATIONS = ["simple", "first", "average", "max"].map((each) => [each, each]);

export function View({ fields, update, models }) {
  const { text, aggregation } = fields;
  const model = chosen(models, fields.model);
  const calls = text.trim() ? [{ path: "v1/tag", body: { text, aggregation, model: modelId(model) } }] : [];
  const answers = useAnswers(calls, text);
  return html`<div class="input">
      <${TextArea} label="Text" value=${text} onInput=${(text) => update({ text })} />
      <div class="controls">
        <${Select} label="Aggregation" value=${aggregation} options=${AGGREGATIONS} onChange=${(aggregation) => update({ aggregation })} />
        <${ModelSelect} models=${models} value=${modelId(model)} onChange=${(id) => update({ model: id })} />
      </div>
    </div>
    <${Frame} answers=${answers} summary=${summary}>${([{ results }]) => html`<${Entities} result=${results[0]} />`}<//>`;
}

const summary = ([{ results }]) => {
  const count = results[0].entities.length;
  return count === 1 ? "1 entity." : `${count || "No"} entities.`;
};

function Entities({ result }) {
  const characters = [...result.text]; // the service counts code points
  let read = 0;
  const parts = result.entities.flatMap(({ start, end, label }) => {
    const before = characters.slice(read, start).join("");
    read = end;
    return [before, html`<mark class="entity">${characters.slice(start, end).join("")} <span class="tag">${label}</span></mark>`];
  });
  return html`<figure>
    <p class="tagged">${parts}${characters.slice(read).join("")}</p>
    <table class="plain">
      <thead><tr><th scope="col">Text</th><th scope="col">Label</th><th scope="col" class="number">Probability</th></tr></thead>
      <tbody>${result.entities.map((each) => html`<tr key=${each.start}><th scope="row">${each.text}</th><td>${each.label}</td>
        <td class="number">${percent(each.score)}</td></tr>`)}</tbody>
    </table>
  </figure>`;
}
