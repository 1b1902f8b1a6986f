// Calls of the service: one `fetch` each, its timing, and what went wrong in words.

const KEY = "softserve-api-key";

export const apiKey = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

// Why a call failed. `kind`: key, overloaded, loading, gone, late, refused or broken.
export class Problem extends Error {
  constructor(kind, detail, retryAfter = null) {
    super(detail);
    this.kind = kind;
    this.detail = detail;
    this.retryAfter = retryAfter; // seconds; null where trying again cannot help
  }
}

// The address of a path of the service, which may be behind a prefix of a proxy.
export const address = (path) => new URL(path, document.baseURI).href;

// Sends a request (`body` undefined: GET); returns {body, timing}; throws `Problem`, or `AbortError` where aborted.
export async function call(path, body, signal) {
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (apiKey.get()) headers.Authorization = `Bearer ${apiKey.get()}`;
  const started = performance.now();
  let response, text;
  try {
    const method = body === undefined ? "GET" : "POST";
    response = await fetch(address(path), { method, headers, body: body && JSON.stringify(body), signal });
    text = await response.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("gone", "The server cannot be reached: it was stopped, or the network is down.", 2);
  }
  const total = performance.now() - started;
  if (!response.ok) throw problemOf(response, text);
  return { body: JSON.parse(text), timing: { ...serverTiming(response.headers.get("Server-Timing")), total } };
}

function problemOf(response, text) {
  const detail = detailOf(text) || response.statusText;
  const retryAfter = Number(response.headers.get("Retry-After")) || 1;
  switch (response.status) {
    case 401:
    case 403:
      return new Problem("key", detail);
    case 429:
      return new Problem("overloaded", detail, retryAfter);
    case 502:
    case 503:
      return new Problem("loading", detail, retryAfter);
    case 504:
      return new Problem("late", detail);
    default:
      return new Problem(response.status < 500 ? "refused" : "broken", detail);
  }
}

function detailOf(text) {
  try {
    return JSON.parse(text).detail;
  } catch {
    return ""; // of a proxy, which answers in HTML
  }
}

// {queue, tokenize, infer} in milliseconds, from a header `Server-Timing` (W3C).
export function serverTiming(header) {
  const steps = (header ?? "").matchAll(/([\w-]+);dur=([\d.]+)/g);
  return Object.fromEntries([...steps].map(([, name, duration]) => [name, Number(duration)]));
}
