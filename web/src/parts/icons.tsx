// Drawn by hand, in the colour of the text next to them.
import type { ComponentChildren } from "preact";

function Icon({ children, size = 16 }: { children: ComponentChildren; size?: number }) {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 16 16" aria-hidden="true">
      {children}
    </svg>
  );
}

export const Mark = () => (
  <svg class="mark" width="26" height="26" viewBox="0 0 26 26" aria-hidden="true">
    <path d="M3 5.5c7 0 5.500 7.500 12 7.500M3 13h12M3 20.500c7 0 5.500-7.500 12-7.500" />
    <circle cx="19.500" cy="13" r="3.600" />
  </svg>
);
export const Sun = () => (
  <Icon>
    <circle cx="8" cy="8" r="3" />
    <path d="M8 1v1.500M8 13.500V15M1 8h1.500M13.500 8H15M3 3l1.100 1.100M11.900 11.900 13 13M13 3l-1.100 1.100M4.100 11.900 3 13" />
  </Icon>
);
export const Moon = () => (
  <Icon>
    <path d="M13.500 9.800A6 6 0 0 1 6.200 2.500a6 6 0 1 0 7.300 7.300Z" />
  </Icon>
);
export const Close = () => (
  <Icon>
    <path d="m3.500 3.500 9 9m0-9-9 9" />
  </Icon>
);
export const Arrow = () => (
  <Icon>
    <path d="M3 8h10M9 4l4 4-4 4" />
  </Icon>
);
export const Stop = () => (
  <Icon>
    <rect x="4" y="4" width="8" height="8" rx="1" />
  </Icon>
);
export const Page = () => (
  <Icon>
    <path d="M4 1.500h5.500L12.500 4.500v10h-8.500zM9.500 1.500v3h3" />
  </Icon>
);
export const Up = () => (
  <Icon size={22}>
    <path d="M8 11V3M4.800 6.200 8 3l3.200 3.200M2.500 10.500v2.500h11v-2.500" />
  </Icon>
);
