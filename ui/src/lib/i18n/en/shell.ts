export const shell = {
  sidebar: 'Chat list',
  sidebarTitle: 'Chat list (Ctrl+B)',
  inspector: 'Memory inspector',
  inspectorTitle: 'Memory (Ctrl+I)',
  theme: {
    system: 'Theme: follows the system',
    light: 'Theme: light',
    dark: 'Theme: dark',
  },
  dismiss: 'Dismiss',
};
