// The views: what the page shows of each before its module is loaded, which it is when the view is opened.

export const VIEWS = {
  "next-word": {
    title: "Next word",
    operation: "next-word",
    defaults: { context: "We had a very", words: 10, coverage: "", model: "" },
    load: () => import("./views/next-word.js"),
  },
  score: {
    title: "Score",
    operation: "score",
    defaults: {
      text: "We had a very good time.\nWe had a very green time.",
      expected: 5,
      top: 10,
      middle: 100,
      tail: 1000,
      model: "",
      other: "",
    },
    load: () => import("./views/score.js"),
  },
  translate: {
    title: "Translate",
    operation: "translate",
    defaults: { text: "Guten Morgen! Wie geht es dir heute?", target: "", n_best: 3, beam_size: 5, model: "", coverage: "" },
    load: () => import("./views/translate.js"),
  },
  classify: {
    title: "Classify",
    operation: "classify",
    defaults: { text: "book a table for two tomorrow", coverage: "", model: "" },
    load: () => import("./views/classify.js"),
  },
  "zero-shot": {
    title: "Zero-shot",
    operation: "zero-shot",
    defaults: {
      text: "My parcel has not arrived yet.",
      labels: "delivery\npayment\nreturns",
      template: "This example is {}.",
      several: "no",
      model: "",
    },
    load: () => import("./views/zero-shot.js"),
  },
  tag: {
    title: "Entities",
    operation: "tag",
    defaults: { text: "Angela Merkel met the president of France in Paris.", aggregation: "simple", model: "" },
    load: () => import("./views/tag.js"),
  },
  rerank: {
    title: "Rerank",
    operation: "rerank",
    defaults: {
      query: "How do I reset my password?",
      texts: "Choose “Forgot password” on the sign-in page.\nWe are open from 9 to 5.\nYour parcel arrives tomorrow.",
      model: "",
    },
    load: () => import("./views/rerank.js"),
  },
  embed: {
    title: "Similarity",
    operation: "embed",
    defaults: {
      texts: "How do I reset my password?\nI forgot the code of my account.\nIt will rain tomorrow.",
      model: "",
    },
    load: () => import("./views/embed.js"),
  },
  other: {
    title: "Other",
    operation: null, // those that no other view has
    defaults: { operation: "", text: null, params: "{}", model: "" }, // text: that of the example
    load: () => import("./views/other.js"),
  },
};
