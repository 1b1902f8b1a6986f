// The classes of a text or an image, or a prediction set; those of probability 0; and which texts are of no class.

import { html, useState } from "../hooks.js";
import { useAnswers } from "../answer.js";
import { percent, plural, whole } from "../format.js";
import { Frame } from "../frame.js";
import { Bar, Examples, Heads, ImageFile, ModelSelect, Select, TextArea, chosen, modelId } from "../parts.js";

const EXAMPLES = ["book a table for two tomorrow", "how do you say thank you in french", "what is on my to do list", "asdfghjkl"];
const SHOWN = 8;
const MOST = 1000; // classes that are asked for
const LEVELS = ["0.8", "0.9", "0.95", "0.99"]; // coverages of prediction sets
const REJECTED = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2]; // fractions of the texts in scope, of the thresholds that are shown

export function View({ fields, update, models }) {
  const model = chosen(models, fields.model);
  const [image, setImage] = useState("");
  const images = model.reads === "image";
  const top_k = Math.min(model.classes, MOST);
  const input = images ? image && { image } : fields.text.trim() && { text: fields.text };
  const coverage = model.calibration_examples && LEVELS.includes(fields.coverage) ? Number(fields.coverage) : null;
  const calls = input ? [{ path: "v1/classify", body: { ...input, ...(coverage ? { coverage } : { top_k }), model: modelId(model) } }] : [];
  const answers = useAnswers(calls, fields.text);
  return html`<div class="input">
      ${images
        ? html`<${ImageFile} onChange=${setImage} />`
        : html`<${TextArea} label="Text" value=${fields.text} rows=${2} onInput=${(text) => update({ text })} />
            <${Examples} texts=${EXAMPLES} onPick=${(text) => update({ text })} />`}
      <div class="controls">
        ${model.calibration_examples && html`<${Select} label="Classes" value=${coverage ? fields.coverage : ""} options=${SETS} onChange=${(level) => update({ coverage: level })} />`}
        <${ModelSelect} models=${models} value=${modelId(model)} onChange=${(id) => update({ model: id })} />
      </div>
    </div>
    <${Frame} answers=${answers} summary=${summary}>${([{ results }]) => html`<${Classes} result=${results[0]} model=${model} asked=${top_k} coverage=${coverage} />`}<//>
    <${Thresholds} rule=${model.out_of_scope} />`;
}

const SETS = [["", "most probable"], ...LEVELS.map((level) => [level, `prediction set, ${whole(100 * level)}\u00a0%`])];

function summary([{ results }]) {
  const { labels, out_of_scope: outside } = results[0];
  const best = labels.length ? `${labels[0].label}, ${percent(labels[0].probability)}` : "none";
  return outside ? `Out of scope: likely to be of no class. Best class: ${best}.` : `Best class: ${best}.`;
}

function Classes({ result, model, asked, coverage }) {
  const [all, setAll] = useState(false);
  const { labels, out_of_scope: outside } = result;
  const rule = model.out_of_scope;
  const threshold = rule ? (rule.score === "probability" ? rule.threshold : null) : model.threshold;
  const zeros = !coverage && labels.length < asked ? model.classes - labels.length : 0;
  const shown = all ? labels : labels.slice(0, SHOWN);
  const rest = 1 - labels.reduce((sum, each) => sum + each.probability, 0);
  return html`<figure>
    <figcaption>${caption(result, model, coverage)}</figcaption>
    <table class="bars">
      <${Heads} names=${["Class", "Bar", "Probability"]} />
      <tbody>
        ${shown.map(({ label, probability }) => html`<tr key=${label}>
          <th scope="row">${breakable(label)}</th>
          <td class="wide"><${Bar} share=${probability} mark=${threshold ?? undefined} /></td>
          <td class="number">${percent(probability)}</td>
        </tr>`)}
        ${!coverage && model.out_of_scope && model.threshold === null && labels.length < asked && rest > 5e-5 && html`<tr class="muted"><th scope="row">of no class</th>
          <td class="wide"><${Bar} share=${rest} /></td><td class="number">${percent(rest)}</td></tr>`}
        ${zeros > 0 && html`<tr class="zero"><th scope="row">${plural(zeros, "other class")}</th>
          <td class="wide"><span class="track empty" aria-hidden="true"></span></td><td class="number">exactly 0</td></tr>`}
      </tbody>
    </table>
    ${labels.length > SHOWN && html`<button type="button" class="quiet" aria-expanded=${all ? "true" : "false"} onClick=${() => setAll(!all)}>
      ${all ? "Show fewer" : `Show ${plural(labels.length - SHOWN, "more class")}`}</button>`}
    ${zeros > 0 && html`<p class="hint">The sparse-softmax of this model keeps its best classes only; the others have probability 0, not a small one.</p>`}
    <${Threshold} model=${model} outside=${outside} />
  </figure>`;
}

function caption({ labels, calibration_examples: examples }, model, coverage) {
  if (coverage) {
    return `A set of ${plural(labels.length, "class")}: sets of this kind hold the right class of at least ${whole(100 * coverage)}\u00a0% of the texts, by ${whole(examples)} calibration examples`;
  }
  return labels.length === model.classes ? "All classes" : `Classes with a probability above 0: ${labels.length} of ${model.classes}`;
}

// A label that may be broken after its underscores.
const breakable = (label) => label.split(/(?<=_)/).map((part, place) => html`${place > 0 && html`<wbr />`}${part}`);

function Threshold({ model, outside }) {
  const rule = model.out_of_scope;
  if (!rule) {
    return model.threshold === null ? null : html`<p class="hint">Classes from ${percent(model.threshold)} on are predicted, and always the best one: the line in the bars.</p>`;
  }
  return html`<p class=${outside ? "warning" : "hint"}>${outside && html`<span aria-hidden="true">⚠ </span>`}
    A text is out of scope where ${rule.score === "probability"
      ? `its best class is below ${percent(rule.threshold)}, the line in the bars`
      : `the score of its best class before the softmax is below ${rule.threshold.toFixed(2)}`}: this one is ${outside ? "out of" : "in"} scope.
    ${" "}On the validation split this rule finds ${percent(rule.detected)} of the texts out of scope and rejects ${percent(rule.rejected)} of those in scope.</p>`;
}

// The thresholds that refuse about so many texts in scope, and the one in use.
function Thresholds({ rule }) {
  const points = rule?.trade_off ?? [];
  if (!points.length) return null;
  const nearest = (rejected) => points.reduce((best, each) => (Math.abs(each.rejected - rejected) < Math.abs(best.rejected - rejected) ? each : best));
  const others = REJECTED.map(nearest).filter((each) => each.threshold !== rule.threshold);
  const rows = [...new Set([...others, rule])].sort((one, other) => one.threshold - other.threshold);
  return html`<details><summary>What other thresholds refuse</summary><div class="scroll" tabindex="0" role="region" aria-label="Thresholds"><table>
    <thead><tr><th scope="col" class="number">Threshold</th><th scope="col" class="number">In scope</th><th scope="col" class="number">Out of scope</th></tr></thead>
    <tbody>${rows.map((each) => html`<tr key=${each.threshold} class=${each === rule ? "current" : undefined}>
      <th scope="row" class="number">${each === rule && "in use: "}${each.threshold.toPrecision(3)}</th><td class="number">${percent(each.rejected)}</td>
      <td class="number">${each.detected === null ? "no examples" : percent(each.detected)}</td></tr>`)}</tbody>
  </table></div>
  <p class="hint">Fractions of the validation examples that are refused. <code>softserve-train calibrate --reject-rate</code> chooses a threshold in the bundle,${" "}
    <code>POST /v1/admin/models/NAME/thresholds</code> in a running service.</p></details>`;
}
