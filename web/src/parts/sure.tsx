import { useState } from "preact/hooks";
import { Close } from "./icons";

/** A button that asks once more before it acts. */
export function Sure({ what, act }: { what: string; act: () => void }) {
  const [asked, setAsked] = useState(false);
  if (asked)
    return (
      <button
        type="button"
        class="danger"
        autoFocus
        onBlur={() => setAsked(false)}
        onClick={(event) => {
          if (event.detail > 1) return; // the second click of a double click asked nothing
          setAsked(false);
          act();
        }}
      >
        Confirm<span class="unseen"> {what}</span>
      </button>
    );
  return (
    <button
      type="button"
      class="icon-button"
      aria-label={what}
      title={what}
      onClick={() => setAsked(true)}
    >
      <Close />
    </button>
  );
}
