// Numbers as text.

export const percent = (share) => {
  if (share === 0) return "0\u00a0%";
  const value = 100 * share;
  return value < 0.01 ? "<\u00a00.01\u00a0%" : `${value.toFixed(value < 0.1 ? 2 : 1)}\u00a0%`;
};

export const fixed = (value, digits = 2) => (value === null ? "−∞" : value.toFixed(digits).replace("-", "−"));

export const signed = (value, digits = 1) => (value > 0 ? "+" : "") + fixed(value, digits);

export const milliseconds = (value) => `${value < 10 ? value.toFixed(1) : Math.round(value)}\u00a0ms`;

export const whole = (value) => value.toLocaleString("en");

export const plural = (count, noun) => `${whole(count)} ${noun}${count === 1 ? "" : noun.endsWith("s") ? "es" : "s"}`;

const NAMES = new Intl.DisplayNames(["en"], { type: "language" });

// The English name of a language; the code itself where it is none.
export const language = (code) => {
  try {
    return NAMES.of(code);
  } catch {
    return code;
  }
};
