import type { ComponentChildren } from "preact";
import type { Problem } from "../types";

/** What went wrong, why, and what to do about it: the server's words. */
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
          <span class="quiet">What helps:</span> {problem.hint}
        </p>
      )}
      {children}
    </div>
  );
}
