// Words of scored sentences: their ranks (as GLTR), and the difference of two models (as LMdiff).

import { html, useState } from "./hooks.js";
import { fixed, percent, signed, whole } from "./format.js";
import { useArrowKeys } from "./parts.js";

// The class of a rank, 0 to 3: the first threshold that it does not exceed; 3 for a probability of 0 too.
export function rankClass(rank, thresholds) {
  const found = rank === null ? -1 : thresholds.findIndex((threshold) => rank <= threshold);
  return found < 0 ? thresholds.length : found;
}

export const spelled = (token) => (token.sentence_end ? "end" : token.word);

// The words of two models side by side: [{word, first, second, difference}]. Models that split words differently are
// compared over the shortest runs of tokens that both spell; null where they read different texts.
export function aligned(first, second) {
  const rows = [];
  const left = first.filter((token) => !token.sentence_end);
  const right = second.filter((token) => !token.sentence_end);
  let i = 0;
  let j = 0;
  while (i < left.length && j < right.length) {
    const [a, b] = [run(left[i++]), run(right[j++])];
    while (a.text.length !== b.text.length) {
      const [behind, tokens, place] = a.text.length < b.text.length ? [a, left, i++] : [b, right, j++];
      if (place >= tokens.length) return null;
      add(behind, tokens[place]);
    }
    if (a.text.toLowerCase() !== b.text.toLowerCase()) return null;
    rows.push(row(a.text, a.total, b.total));
  }
  if (i < left.length || j < right.length) return null;
  const ends = [first.at(-1), second.at(-1)];
  if (ends.every((end) => end?.sentence_end)) rows.push(row("end", ...ends.map((end) => end.log_probability ?? -Infinity)));
  return rows;
}

const run = (token) => ({ text: token.word, total: token.log_probability ?? -Infinity });

function add(found, token) {
  found.text += token.word;
  found.total += token.log_probability ?? -Infinity;
}

const row = (word, first, second) => ({ word, first, second, difference: first === second ? 0 : second - first });

// A sentence whose words are coloured by rank; the chosen word says what the model expected.
export function RankedWords({ result, thresholds, vocabulary }) {
  const { tokens, text } = result;
  const surprise = tokens.reduce((most, token, place) => (rank(token) > rank(tokens[most]) ? place : most), 0);
  const [shown, setShown] = useState(null);
  const { current, setCurrent, row: line, move } = useArrowKeys(tokens.length);
  const token = tokens[shown ?? surprise] ?? tokens[surprise];
  return html`<figure class="sentence">
    <div class="words" role="toolbar" aria-label=${`Words of: ${text}`} ref=${line} onKeyDown=${move}>
      ${tokens.map((each, place) => html`<button type="button" key=${place} tabindex=${place === current ? 0 : -1}
        class=${`token rank-${rankClass(each.rank, thresholds)}`} aria-pressed=${each === token ? "true" : "false"}
        aria-label=${`${spelled(each)}, ${rankText(each)}`}
        onFocus=${() => { setShown(place); setCurrent(place); }} onMouseEnter=${() => setShown(place)} onClick=${() => setShown(place)}>
        <span>${spelled(each)}</span><small>${each.rank === null ? "∞" : whole(each.rank)}</small>
      </button>`)}
    </div>
    <${Expected} token=${token} vocabulary=${vocabulary} />
    <${ScoreTable} tokens=${tokens} />
  </figure>`;
}

const rank = (token) => token.rank ?? Infinity;

const rankText = (token) => (token.rank === null ? "probability 0" : `rank ${whole(token.rank)}`);

function Expected({ token, vocabulary }) {
  const place = token.rank === null ? "has probability 0" : `has rank ${whole(token.rank)} of ${whole(vocabulary)}`;
  return html`<div class="expected">
    <p><strong>${spelled(token)}</strong> ${token.unknown && html`<span class="tag">not in the vocabulary</span>`}
      ${" "}${place}, probability ${percent(Math.exp(token.log_probability ?? -Infinity))}; entropy ${fixed(token.entropy)} nats.</p>
    <p class="hint">The model expected ${token.alternatives.map((word, index) => html`${index > 0 && ", "}<b>${spelled(word)}</b> ${percent(word.probability)}`)}.</p>
  </div>`;
}

function ScoreTable({ tokens }) {
  return html`<details><summary>As a table</summary><div class="scroll" tabindex="0" role="region" aria-label="Scores of the words"><table>
    <thead><tr><th scope="col">Word</th><th scope="col" class="number">Rank</th><th scope="col" class="number">Log-probability</th>
      <th scope="col" class="number">Entropy</th><th scope="col">Expected</th></tr></thead>
    <tbody>${tokens.map((token, place) => html`<tr key=${place}>
      <th scope="row">${spelled(token)}</th><td class="number">${token.rank === null ? "∞" : whole(token.rank)}</td>
      <td class="number">${fixed(token.log_probability)}</td><td class="number">${fixed(token.entropy)}</td>
      <td>${token.alternatives.map(spelled).join(", ")}</td></tr>`)}</tbody>
  </table></div></details>`;
}

const LARGE = 2; // a difference in nats with the full colour

// A sentence whose words show by how much the second model finds them more probable than the first.
export function DifferentWords({ first, second, names }) {
  const rows = aligned(first.tokens, second.tokens);
  if (rows === null) return html`<p class="hint">The two models read this sentence as different words, and cannot be compared word by word.</p>`;
  return html`<figure class="sentence">
    <figcaption>Log-probability of ${names[1]} minus that of ${names[0]}</figcaption>
    <div class="words">
      ${rows.map(({ word, difference }, place) => html`<span key=${place} class=${`token ${sign(difference)}`}
        style=${{ "--strength": `${Math.round(Math.min(Math.abs(difference) / LARGE, 1) * 45)}%` }}>
        <span>${word}</span><small>${signed(difference)}</small></span>`)}
    </div>
    <details><summary>As a table</summary><div class="scroll" tabindex="0" role="region" aria-label="Differences of the words"><table>
      <thead><tr><th scope="col">Word</th>${names.map((name) => html`<th scope="col" class="number" key=${name}>${name}</th>`)}<th scope="col" class="number">Difference</th></tr></thead>
      <tbody>${rows.map((each, place) => html`<tr key=${place}><th scope="row">${each.word}</th>
        <td class="number">${log(each.first)}</td><td class="number">${log(each.second)}</td><td class="number">${signed(each.difference, 2)}</td></tr>`)}</tbody>
    </table></div></details>
  </figure>`;
}

const log = (value) => fixed(Number.isFinite(value) ? value : null);

const sign = (difference) => (Math.abs(difference) < 0.05 ? "same" : difference > 0 ? "more" : "less");
