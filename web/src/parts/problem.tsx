import type { ComponentChildren } from "preact";
import type { Problem } from "../types";

/** What went wrong, why, and a hint, as the server reported it. */
export function ProblemNote({
  problem,
  children,
}: {
  problem: Problem;
  children?: ComponentChildren;
}) {
  return (
    <div class="problem" role="alert">
      <strong>{problem.title}</strong>
      {problem.detail && <p>{problem.detail}</p>}
      {problem.hint && (
        <p class="hint">
          <span class="quiet">Hint:</span> {problem.hint}
        </p>
      )}
      {children}
    </div>
  );
}
