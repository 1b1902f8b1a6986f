// The labels that the reader names, and how well the text entails each of them.

import { html } from "../hooks.js";
import { useAnswers } from "../answer.js";
import { percent } from "../format.js";
import { Frame } from "../frame.js";
import { Bars, ModelSelect, Select, TextArea, chosen, lines, modelId } from "../parts.js";

export function View({ fields, update, models }) {
  const { text, template } = fields;
  const model = chosen(models, fields.model);
  const labels = lines(fields.labels);
  const body = { text, labels, template, multi_label: fields.several === "yes", model: modelId(model) };
  const answers = useAnswers(text.trim() && labels.length ? [{ path: "v1/zero-shot", body }] : [], text + fields.labels + template);
  return html`<div class="input">
      <${TextArea} label="Text" value=${text} rows=${2} onInput=${(text) => update({ text })} />
      <${TextArea} label="Labels, one on each line" value=${fields.labels} onInput=${(labels) => update({ labels })} />
      <${TextArea} label="Template, in which the label takes the place of {}" value=${template} rows=${1} onInput=${(template) => update({ template })} />
      <div class="controls">
        <${Select} label="Several labels may hold" value=${fields.several} options=${[["no", "no"], ["yes", "yes"]]} onChange=${(several) => update({ several })} />
        <${ModelSelect} models=${models} value=${modelId(model)} onChange=${(id) => update({ model: id })} />
      </div>
    </div>
    <${Frame} answers=${answers} summary=${summary}>${([{ results }]) => html`<figure>
      <${Bars} names=${["Label", "Bar", "Probability"]} rows=${results[0].labels.map(row)} /></figure>`}<//>`;
}

const row = ({ label, probability }) => ({ name: label, share: probability, value: percent(probability) });

function summary([{ results }]) {
  const [best] = results[0].labels;
  return `Best label: ${best.label}, ${percent(best.probability)}.`;
}
