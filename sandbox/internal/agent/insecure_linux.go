package agent

import (
	"os"
	"strings"

	"github.com/rondo-rl/rondo/sandbox/internal/wire"
)

// ownFolders are the folders that a sandbox without isolation keeps in its private one; every other path is the host's.
func ownFolders(boot wire.Boot) []string {
	folders := append([]string{boot.Workdir, "/tmp", "/var/tmp", "/logs"}, boot.ReadOnly...)
	for _, mount := range boot.Mounts {
		if mount.Overlay || mount.Source != mount.Target {
			folders = append(folders, mount.Target)
		}
	}
	return folders
}

// makeFolders lays a sandbox without isolation out in its private folder. What is to be writable is copied.
func makeFolders(boot wire.Boot) error {
	for _, folder := range ownFolders(boot) {
		if err := os.MkdirAll(boot.Insecure+folder, 0o755); err != nil {
			return err
		}
	}
	for _, mount := range boot.Mounts {
		if !mount.Overlay && mount.Source == mount.Target {
			continue
		}
		if err := os.CopyFS(boot.Insecure+mount.Target, os.DirFS(mount.Source)); err != nil {
			return err
		}
	}
	return nil
}

// environment is the command's environment. Without isolation, values that name one of the sandbox's folders name the real one.
func (a *agent) environment(env map[string]string) map[string]string {
	if a.boot.Insecure == "" {
		return env
	}
	translated := make(map[string]string, len(env))
	for name, value := range env {
		parts := strings.Split(value, ":")
		for i, part := range parts {
			parts[i] = a.path(part)
		}
		translated[name] = strings.Join(parts, ":")
	}
	return translated
}
