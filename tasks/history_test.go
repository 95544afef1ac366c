package tasks

import (
	"bytes"
	"compress/zlib"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// git runs Git in a folder and answers what it wrote.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		lacking(t, "git is missing: %v", err)
	}
	cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com", "-c",
		"commit.gpgsign=false"}, args...)...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// TestHistoryIsScrubbed: whatever a snapshot's repository held besides its files, the agent finds
// one commit and nothing else.
func TestHistoryIsScrubbed(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "pack"), with(fstest.MapFS{
		"t/environment/repo/src/deep/code.py": file("broken\n"), "t/environment/repo/src.py": file("x\n"),
		"t/environment/repo/empty": file(""),
		"t/environment/repo/link":  link("src/deep"),
	})); err != nil {
		t.Fatal(err)
	}
	repo := filepath.Join(dir, "pack/t/environment/repo")
	const fix = "THE FIX THAT LIES AHEAD"
	git(t, repo, "init", "-q", "-b", "main")
	git(t, repo, "add", "-A")
	git(t, repo, "commit", "-q", "-m", "first")
	if err := os.WriteFile(filepath.Join(repo, "src/deep/code.py"), []byte(fix), 0o644); err != nil {
		t.Fatal(err)
	}
	git(t, repo, "commit", "-q", "-a", "-m", fix)
	git(t, repo, "tag", "v2")
	git(t, repo, "reset", "-q", "--hard", "HEAD~1")
	git(t, repo, "config", "core.hooksPath", "/tmp/hooks")

	loaded, err := LoadDir(filepath.Join(dir, "pack"))
	if err != nil {
		t.Fatal(err)
	}
	if len(loaded[0].Warnings) != 1 || !strings.Contains(loaded[0].Warnings[0], "one commit") {
		t.Errorf("warnings %q", loaded[0].Warnings)
	}
	out := filepath.Join(dir, "out")
	if err := os.CopyFS(out, loaded[0].Snapshot); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"fsck --strict --full", ""}, {"status --porcelain", ""}, {"rev-list --all --reflog --count", "1"},
		{"for-each-ref --format=%(refname)", "refs/heads/main"},
		{"branch --show-current", "main"}, {"ls-files", "README.md\nempty\nlink\nrun.sh\nsrc.py\nsrc/deep/code.py"},
	} {
		if got := git(t, out, strings.Fields(c.args)...); got != c.want {
			t.Errorf("git %s: %q, want %q", c.args, got, c.want)
		}
	}
	if config, err := os.ReadFile(filepath.Join(out, ".git/config")); err != nil || string(config) != gitConfig {
		t.Errorf("config %q, %v", config, err)
	}
	err = fs.WalkDir(loaded[0].Snapshot, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(loaded[0].Snapshot, name)
		if err != nil && name != "link" {
			return err
		}
		if r, err := zlib.NewReader(bytes.NewReader(data)); err == nil {
			data, _ = io.ReadAll(r)
		}
		if bytes.Contains(data, []byte(fix)) {
			t.Errorf("%s holds the fix", name)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	again, err := LoadDir(filepath.Join(dir, "pack"))
	if err != nil || again[0].Digest != loaded[0].Digest {
		t.Errorf("another digest the second time: %v", err)
	}
}

func TestInnerRepositories(t *testing.T) {
	for _, name := range []string{"vendor/x/.git", "vendor/x/.git/HEAD"} {
		_, err := LoadPack(with(fstest.MapFS{"t/environment/repo/" + name: file("gitdir: ../../.git/modules/x\n")}))
		if err == nil || !strings.Contains(err.Error(), "vendor/x/.git") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
