package sandbox_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
)

// engineOf puts a docker command on the path that is a shell script; "" puts none there.
func engineOf(t *testing.T, script string) {
	t.Helper()
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	dir := t.TempDir()
	if script != "" {
		if err := os.WriteFile(filepath.Join(dir, "docker"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	sandbox.ForgetEngine()
	t.Cleanup(sandbox.ForgetEngine)
}

// shell is this machine's shell with the libraries that it needs.
func shell(t *testing.T) map[string]string {
	t.Helper()
	out, err := exec.Command("ldd", "/bin/sh").Output()
	if err != nil {
		t.Skipf("ldd tells the libraries of a shell: %v", err)
	}
	files := map[string]string{}
	for _, name := range append(regexp.MustCompile(`/\S+`).FindAllString(string(out), -1), "/bin/sh") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[name[1:]] = string(text)
	}
	return files
}

// TestImageWithoutEngine: a machine without a container engine has an image from its registry, once
// for all that want it, and a sandbox runs its programs.
func TestImageWithoutEngine(t *testing.T) {
	registry := sandboxtest.NewRegistry(t)
	image := registry.Image(t, runtime.GOARCH, registry.Add(ocispec.MediaTypeImageLayerGzip,
		sandboxtest.Zip(sandboxtest.Layer(t, shell(t)))),
		registry.Add(ocispec.MediaTypeImageLayer, sandboxtest.Layer(t,
			map[string]string{"work/greeting": "from the image"})))
	registry.Index(t, map[string]ocispec.Descriptor{runtime.GOARCH: image})
	engineOf(t, "")
	cache := t.TempDir()
	var wait sync.WaitGroup
	var opened [4]sandbox.Image
	for i := range opened {
		wait.Go(func() {
			var err error
			if opened[i], err = sandbox.OpenImage(t.Context(), registry.Name(),
				image.Digest.String(), cache); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if read := registry.Read.Load(); read != 2 {
		t.Errorf("%d layers were read, want each of 2 once", read)
	}
	got, err := sandbox.OpenImage(t.Context(), registry.Name(), "", cache)
	if err != nil || got.ID != image.Digest.String() || got.Root != opened[0].Root || got.Workdir != "/work" ||
		got.Env["GREETING"] != "a=b" {
		t.Fatalf("%+v, %v, want %s in %s", got, err, image.Digest, opened[0].Root)
	}
	sb := sandboxtest.New(t, sandbox.Spec{Root: got.Root})
	result, err := sb.Exec(t.Context(), sandbox.Command{Argv: []string{"/bin/sh", "-c",
		"read line < /work/greeting; echo $line"}})
	if err != nil || !strings.Contains(string(result.Stdout), "from the image") {
		t.Errorf("%+v, %v", result, err)
	}
	wanted := digest.FromString("another").String()
	if _, err := sandbox.OpenImage(t.Context(), registry.Name(), wanted, cache); err == nil ||
		!strings.Contains(err.Error(), wanted+" was asked for") {
		t.Errorf("another digest: %v", err)
	}
	if _, err := sandbox.OpenBuiltImage(t.Context(), registry.Name(), "", cache); err == nil ||
		!strings.Contains(err.Error(), "Docker engine") {
		t.Errorf("an image of the engine alone: %v", err)
	}
}

// TestImageThatTheEngineHasNot: where the engine has another image under the name than the run was
// opened with, the registry's counts.
func TestImageThatTheEngineHasNot(t *testing.T) {
	registry := sandboxtest.NewRegistry(t)
	image := registry.Image(t, runtime.GOARCH)
	registry.Tag = image.Digest.String()
	other := digest.FromString("another").String()
	engineOf(t, `case "$1" in image) echo '{"Id": "`+other+`"}';; version) echo 28;; *) exit 1;; esac`)
	got, err := sandbox.OpenImage(t.Context(), registry.Name(), image.Digest.String(), t.TempDir())
	if err != nil || got.ID != image.Digest.String() {
		t.Errorf("%+v, %v, want %s", got, err, image.Digest)
	}
	if _, err := sandbox.OpenBuiltImage(t.Context(), registry.Name(), image.Digest.String(), t.TempDir()); err == nil ||
		!strings.Contains(err.Error(), other) {
		t.Errorf("an image of the engine alone: %v, want that it is %s", err, other)
	}
}

// TestImageOfAnEngine: what an engine has of a registry is known by the digest that it has there,
// by which every machine finds it; what it has built itself, by the engine's own. A download of the
// name does not keep those waiting whose tree is there.
func TestImageOfAnEngine(t *testing.T) {
	own, pulled, foreign := digest.FromString("configuration").String(), digest.FromString("manifest").String(),
		digest.FromString("foreign").String()
	tree := filepath.Join(t.TempDir(), "tree.tar")
	if err := os.WriteFile(tree, sandboxtest.Layer(t, map[string]string{"greeting": "from the engine"}),
		0o600); err != nil {
		t.Fatal(err)
	}
	engine := `case "$1" in
	image) echo '{"Id": "` + own + `", "RepoDigests": [DIGESTS], "Config": {"WorkingDir": "/work"}}';;
	export) exec /bin/cat ` + tree + `;;
	*) echo 28;;
esac`
	for name, try := range map[string]struct{ digests, want string }{
		"pulled": {`"elsewhere/tool@` + foreign + `", "app/tool2@` + foreign + `", "app/tool@` + pulled + `"`, pulled},
		"built":  {"", own},
	} {
		t.Run(name, func(t *testing.T) {
			engineOf(t, strings.Replace(engine, "DIGESTS", try.digests, 1))
			cache := t.TempDir()
			for _, id := range []string{"", own, try.want} {
				image, err := sandbox.OpenImage(t.Context(), "app/tool:1", id, cache)
				text, readErr := os.ReadFile(filepath.Join(image.Root, "greeting"))
				if err != nil || readErr != nil || string(text) != "from the engine" ||
					id == "" && (image.ID != try.want || image.Workdir != "/work") || id != "" && image.ID != id {
					t.Errorf("asked for %q: %+v, %q, %v, want %s", id, image, text, errors.Join(err, readErr), try.want)
				}
			}
			if _, err := sandbox.OpenBuiltImage(t.Context(), "app/tool:1", foreign, cache); err == nil {
				t.Error("an image of another repository was taken for this one")
			}
		})
	}
}

// TestImageThatIsThere: whoever has an image's tree waits for nobody who brings another one of its
// name, and who waits heeds his context.
func TestImageThatIsThere(t *testing.T) {
	registry := sandboxtest.NewRegistry(t)
	image := registry.Image(t, runtime.GOARCH)
	registry.Tag = image.Digest.String()
	engineOf(t, "")
	cache := t.TempDir()
	if _, err := sandbox.OpenImage(t.Context(), registry.Name(), image.Digest.String(), cache); err != nil {
		t.Fatal(err)
	}
	registry.Wait = make(chan struct{})
	var bringing sync.WaitGroup
	bringing.Go(func() {
		if _, err := sandbox.OpenImage(t.Context(), registry.Name(), "", t.TempDir()); err != nil {
			t.Error(err)
		}
	})
	registry.Wait <- struct{}{} // the other one asks
	if _, err := sandbox.OpenImage(t.Context(), registry.Name(), image.Digest.String(), cache); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sandbox.OpenImage(ctx, registry.Name(), digest.FromString("another").String(),
		cache); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled while another image of the name is brought: %v", err)
	}
	close(registry.Wait)
	bringing.Wait()
}
