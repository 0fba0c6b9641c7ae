import preact from "@preact/preset-vite";
import { defineConfig } from "vite";

// The page is served by `colligate serve` at its root; addresses are relative, so that it works
// behind a prefix too. In development a running server answers the API.
const server = "http://127.0.0.1:8420";

export default defineConfig({
  base: "./",
  plugins: [preact({ prefreshEnabled: false, devToolsEnabled: false })],
  server: { proxy: { "/api": server, "/healthz": server } },
  build: {
    outDir: "../src/colligate/server/page",
    emptyOutDir: true,
    target: "es2022",
    cssTarget: ["chrome123", "firefox121", "safari17.5"], // the first with light-dark()
    license: { fileName: "assets/licences.md" }, // what is bundled asks for its notices
    assetsInlineLimit: 0, // the Content-Security-Policy allows no data: addresses
    modulePreload: { polyfill: false },
  },
});
