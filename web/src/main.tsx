import { render } from "preact";
import { App } from "./app";
import { loadAll } from "./state";
import "./styles/base.css";
import "./styles/controls.css";
import "./styles/answer.css";
import "./styles/run.css";
import "./styles/pictures.css";
import "./styles/document.css";
import "./styles/library.css";
import "./styles/table.css";

const root = document.getElementById("page");
if (root) render(<App />, root);
void loadAll();
