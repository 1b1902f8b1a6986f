// The API reference: Swagger UI with the OpenAPI document of the models that this server has loaded.

const dark = matchMedia("(prefers-color-scheme: dark)");
const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches); // a class of Swagger UI
dark.addEventListener("change", follow);
follow();

SwaggerUIBundle({
  url: new URL("web/openapi.json", document.baseURI).href,
  dom_id: "#swagger-ui",
  deepLinking: true,
  validatorUrl: null, // never sends the document to another server
});
