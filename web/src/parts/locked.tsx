import { useEffect, useRef } from "preact/hooks";
import { locked, useToken } from "../api";

/** Asks for the token, once, when the server needs one. */
export function Locked() {
  const dialog = useRef<HTMLDialogElement>(null);
  const field = useRef<HTMLInputElement>(null);
  const wanted = locked.value;
  useEffect(() => {
    if (wanted) dialog.current?.showModal();
    else dialog.current?.close();
  }, [wanted]);
  return (
    <dialog
      class="locked"
      ref={dialog}
      aria-labelledby="locked-title"
      onCancel={(event) => event.preventDefault()}
    >
      <form
        onSubmit={(event) => {
          event.preventDefault();
          const token = field.current?.value.trim();
          if (token) useToken(token);
        }}
      >
        <h2 id="locked-title">This server needs a token</h2>
        <p class="quiet">
          Whoever started the server has it: <code>colligate serve</code> printed it, or it was set
          there. It is kept in this tab only.
        </p>
        {wanted === "wrong" && <p role="alert">This is not the token of this server.</p>}
        <label>
          Token
          <input ref={field} type="password" autocomplete="off" spellcheck={false} required />
        </label>
        <button class="primary">Continue</button>
      </form>
    </dialog>
  );
}
