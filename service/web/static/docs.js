// The API reference: Swagger UI with the OpenAPI document of this server.

SwaggerUIBundle({
  url: new URL("openapi.json", document.baseURI).href,
  dom_id: "#swagger-ui",
  deepLinking: true,
  validatorUrl: null, // never sends the document to another server
});
