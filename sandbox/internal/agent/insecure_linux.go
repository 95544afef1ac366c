package agent

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/rondo-rl/rondo/sandbox/internal/wire"
)

// private is the layout of a sandbox without isolation: its folders lie in one private folder of
// the host, and texts that name them (command lines, environment, scripts of the verifier) are
// rewritten, as are the names in what comes back. It is a stand-in for a file system of its own,
// good for well-behaved programs only.
type private struct {
	folder  string
	folders []string
	names   *regexp.Regexp
}

// newPrivate makes the folders. What is to be writable is copied.
func newPrivate(boot wire.Boot, mounts []wire.Mount) (*private, error) {
	p := &private{folder: boot.Insecure, folders: append([]string{boot.Workdir, "/tmp", "/var/tmp", "/logs", "/root"},
		boot.ReadOnly...)}
	for _, mount := range mounts {
		if mount.Overlay || mount.Source != mount.Target {
			p.folders = append(p.folders, mount.Target)
		}
	}
	quoted := make([]string, len(p.folders))
	for i, folder := range p.folders {
		quoted[i] = regexp.QuoteMeta(folder)
		if err := os.MkdirAll(p.folder+folder, 0o755); err != nil {
			return nil, err
		}
	}
	p.names = regexp.MustCompile(`(^|[^A-Za-z0-9_./-])(` + strings.Join(quoted, "|") + `)($|[^A-Za-z0-9_.-])`)
	for _, mount := range mounts {
		if !mount.Overlay && mount.Source == mount.Target {
			continue
		}
		if err := copyMount(p.folder+mount.Target, mount.Source); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// copyMount copies a folder, or a file in the place of the empty folder that was made for it.
func copyMount(target, source string) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.CopyFS(target, os.DirFS(source))
	}
	data, err := os.ReadFile(source)
	if err == nil {
		err = os.Remove(target)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(target, data, info.Mode().Perm())
}

// path is where a path of the sandbox really is.
func (p *private) path(inside string) string {
	if p == nil {
		return inside
	}
	for _, folder := range p.folders {
		if inside == folder || strings.HasPrefix(inside, folder+"/") {
			return p.folder + inside
		}
	}
	return inside
}

// outward rewrites the names of the sandbox's folders in a text to their real ones.
func (p *private) outward(text string) string {
	if p == nil {
		return text
	}
	var out strings.Builder
	for {
		found := p.names.FindStringSubmatchIndex(text)
		if found == nil {
			return out.String() + text
		}
		// of the folder's name, whose last letter keeps /app/tmp from being taken for /tmp
		start, last := found[4], found[5]-1
		out.WriteString(text[:start] + p.folder + text[start:last])
		text = text[last:]
	}
}

// inward rewrites the real names in an output to those of the sandbox.
func (p *private) inward(output []byte) []byte {
	if p == nil {
		return output
	}
	return bytes.ReplaceAll(output, []byte(p.folder), nil)
}

// command rewrites a command line and its environment.
func (p *private) command(request wire.Request) wire.Request {
	if p == nil {
		return request
	}
	for i := range request.Argv {
		request.Argv[i] = p.outward(request.Argv[i])
	}
	env := make(map[string]string, len(request.Env))
	for name, value := range request.Env {
		env[name] = p.outward(value)
	}
	request.Env = env
	return request
}

// maxScript is the largest text that is looked through for names of folders.
const maxScript = 1 << 20

// scripts rewrites the texts in a folder.
func (p *private) scripts(folder string) error {
	return filepath.WalkDir(folder, func(name string, found os.DirEntry, err error) error {
		if err != nil || !found.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil || len(text) > maxScript || !utf8.Valid(text) {
			return err
		}
		return os.WriteFile(name, []byte(p.outward(string(text))), 0)
	})
}
