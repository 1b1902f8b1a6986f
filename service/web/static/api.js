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

// Sends a request with the API key; returns the response; throws `Problem`, or `AbortError` where aborted.
export async function send(path, options = {}) {
  const headers = { ...options.headers };
  if (apiKey.get()) headers.Authorization = `Bearer ${apiKey.get()}`;
  return reached(async () => {
    const response = await fetch(address(path), { ...options, headers });
    if (!response.ok) throw problemOf(response, await response.text());
    return response;
  });
}

// Sends JSON (`body` undefined: GET); returns {body, timing}; throws as `send`.
export async function call(path, body, signal, headers = {}) {
  const started = performance.now();
  const sent = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const response = await send(path, { ...sent, headers, signal });
  const text = await reached(() => response.text());
  const total = performance.now() - started;
  return { body: JSON.parse(text), timing: { ...serverTiming(response.headers.get("Server-Timing")), total } };
}

async function reached(work) {
  try {
    return await work();
  } catch (error) {
    if (error.name === "AbortError" || error instanceof Problem) throw error;
    throw new Problem("gone", "The server cannot be reached: it was stopped, or the network is down.", 2);
  }
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
