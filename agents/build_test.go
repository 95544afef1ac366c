package agents

import (
	"archive/tar"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
)

// script is an agent that says what it is asked for, and that no machine has beside its layer.
const script = `#!/bin/sh
case "$1" in
--version) echo "agent $(cat /opt/agent/VERSION)" ;;
--help) echo "  --yes   ask nothing" ;;
*) echo "did $*" ;;
esac
`

// ownFiles writes a folder with the agent, and gives its profile.
func ownFiles(t *testing.T, files map[string]string) Profile {
	t.Helper()
	folder := t.TempDir()
	for name, content := range files {
		name = filepath.Join(folder, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(content),
			0o700)); err != nil {
			t.Fatal(err)
		}
	}
	program := Folder + "/bin/agent"
	return Profile{Name: "mine", Install: Install{Files: folder, Version: "1.2"}, Command: []string{program,
		"--yes", Instruction}, Help: []string{program, "--help"}}
}

func TestBuildFromFiles(t *testing.T) {
	sandboxtest.Require(t)
	store := openStore(t)
	files := map[string]string{"bin/agent": script, "VERSION": "1.2\n"}
	p := ownFiles(t, files)
	if err := os.Symlink("../VERSION", filepath.Join(p.Install.Files, "bin", "version")); err != nil {
		t.Fatal(err)
	}
	first, err := Builder{Store: store, Scratch: t.TempDir()}.Build(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if first.Reported != "agent 1.2" || first.Files != 2 || first.Glibc != "" || first.Untried ||
		strings.Contains(first.Profile.Install.Files, "/") {
		t.Errorf("%+v", first)
	}
	opened, err := openCache(t, t.TempDir(), 1<<20).Open(t.Context(), store, first.Digest)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	info, err := os.Stat(filepath.Join(opened.Path, "bin", "agent"))
	if err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v: another user cannot start it", info.Mode(), err)
	}
	// The same files at another time and place are the same layer, and others are another one.
	again := ownFiles(t, files)
	if err := os.Symlink("../VERSION", filepath.Join(again.Install.Files, "bin", "version")); err != nil {
		t.Fatal(err)
	}
	renamed := filepath.Join(t.TempDir(), filepath.Base(p.Install.Files))
	if err := os.Rename(again.Install.Files, renamed); err != nil {
		t.Fatal(err)
	}
	again.Install.Files = renamed
	second, err := Builder{Store: store}.Build(t.Context(), again)
	if err != nil || second.Digest != first.Digest {
		t.Errorf("%s, then %s, %v", first.Digest, second.Digest, err)
	}
	archived := again
	archived.Install.Files = filepath.Join(t.TempDir(), "agent.tar")
	tree := tarOf(t, entry{name: "./VERSION", content: files["VERSION"], kind: tar.TypeReg},
		entry{name: "./bin/agent", content: script, kind: tar.TypeReg},
		entry{name: "./bin/version", link: "../VERSION", kind: tar.TypeSymlink})
	if err := os.WriteFile(archived.Install.Files, tree, 0o600); err != nil {
		t.Fatal(err)
	}
	third, err := Builder{Store: store}.Build(t.Context(), archived)
	if err != nil || third.Files != first.Files || third.Bytes != first.Bytes || third.Reported != first.Reported {
		t.Errorf("%+v, then %+v of an archive, %v", first, third, err)
	}
	found, err := Find(t.Context(), store, first.Digest[:leastDigits])
	if err != nil || found.Digest != first.Digest {
		t.Errorf("%+v, %v", found, err)
	}
}

// TestBuildRefuses: what cannot be a layer, or does not fit its profile, is not in the list.
func TestBuildRefuses(t *testing.T) {
	sandboxtest.Require(t)
	for name, c := range map[string]struct {
		files  map[string]string
		change func(t *testing.T, p *Profile)
		want   error
		says   string
	}{
		"an option that the version does not know": {
			change: func(_ *testing.T, p *Profile) {
				p.Command, p.Seen = append(p.Command, "--json"), []string{"1.0", "1.1"}
			},
			want: ErrMisfit, says: "it was tried with 1.0, 1.1): `/opt/agent/bin/agent --help` names no --json",
		},
		"a program that is not there": {
			change: func(_ *testing.T,
				p *Profile) {
				p.Command[0] = Folder + "/bin/other"
			}, want: ErrMisfit, says: "ended with 127",
		},
		"a program that needs what the machine has": {
			files: map[string]string{"bin/agent": "#!/bin/sh\nexec cat /opt/rondo-tools/files\n",
				"VERSION": "1"}, want: ErrMisfit, says: "ended with 1",
		},
		"a link out of the folder": {
			change: func(t *testing.T, p *Profile) {
				if err := os.Symlink("/etc/passwd", filepath.Join(p.Install.Files, "passwd")); err != nil {
					t.Fatal(err)
				}
			}, want: ErrInstall, says: "leaves the tree",
		},
		"no archive": {
			change: func(t *testing.T, p *Profile) {
				p.Install.Files = filepath.Join(t.TempDir(), "agent.tar")
				if err := os.WriteFile(p.Install.Files, []byte("no tar"), 0o644); err != nil {
					t.Fatal(err)
				}
			}, want: ErrInstall, says: "the installer ended with 2: tar",
		},
		"a folder that is not there": {
			change: func(_ *testing.T, p *Profile) { p.Install.Files = "/nope" }, want: os.ErrNotExist, says: "/nope",
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := openStore(t)
			if c.files == nil {
				c.files = map[string]string{"bin/agent": script, "VERSION": "1"}
			}
			p := ownFiles(t, c.files)
			if c.change != nil {
				c.change(t, &p)
			}
			_, err := Builder{Store: store, Scratch: t.TempDir()}.Build(t.Context(), p)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %v with %q", err, c.want, c.says)
			}
			if all, err := List(t.Context(), store); err != nil || len(all) > 0 {
				t.Errorf("%v, %v", all, err)
			}
		})
	}
}
