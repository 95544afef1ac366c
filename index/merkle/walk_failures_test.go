package merkle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/index/ignore"
)

// A folder whose ignore file cannot be used is unknown: what its rules keep out must not get
// in, and nothing is lost.
func TestUnknownFolderKeepsItsFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "known/a"), "1")
	write(t, filepath.Join(dir, "part/deep/b"), "2")
	write(t, filepath.Join(dir, "part/c"), "3")
	settled()
	before := walk(t, dir, nil)
	write(t, filepath.Join(dir, "part/deep", ignore.GitFile), strings.Repeat("x", ignore.MaxFile+1))
	if err := os.Remove(filepath.Join(dir, "part/deep/b")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "part/d"), "4")
	after, err := Walk(t.Context(), dir, before.State, DefaultLimits())
	var partial *PartialError
	if !errors.As(err, &partial) || partial.Count != 1 || partial.Unknown[0].Path != "part/deep" ||
		!strings.Contains(err.Error(), `"part/deep"`) {
		t.Fatalf("%v", err)
	}
	changes := Diff(&before.Root, &after.Root)
	if len(changes.Removed) != 0 || len(changes.Added) != 1 || changes.Added[0].Path != "part/d" {
		t.Errorf("%+v", changes)
	}
	held := Carry(&before.Root, &after.Root)
	if got := paths(&held); !slices.Equal(got, []string{"known/a", "part/c", "part/d", "part/deep/b"}) {
		t.Errorf("an index then holds %q", got)
	}
	if held.Partial || after.Root.Digest == before.Root.Digest || after.Root.Digest == held.Digest {
		t.Error("a partial tree's digest is that of a whole one")
	}
	if err := os.Remove(filepath.Join(dir, "part/deep", ignore.GitFile)); err != nil {
		t.Fatal(err)
	}
	whole := walk(t, dir, after.State)
	if changes = Diff(&held, &whole.Root); len(changes.Removed) != 1 || changes.Removed[0].Path != "part/deep/b" {
		t.Errorf("once it is known: %+v", changes)
	}
}

func TestUnreadableFolder(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read everything; .ci/run runs the tests as an ordinary user too")
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "closed/a"), "1")
	write(t, filepath.Join(dir, "secret"), "2")
	before := walk(t, dir, nil)
	for _, name := range []string{"closed", "secret"} {
		if err := os.Chmod(filepath.Join(dir, name), 0); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { os.Chmod(filepath.Join(dir, "closed"), 0o755) })
	after, err := Walk(t.Context(), dir, before.State, DefaultLimits())
	var partial *PartialError
	if !errors.As(err, &partial) || partial.Count != 2 || !errors.Is(err, os.ErrPermission) {
		t.Fatalf("%v", err)
	}
	if changes := Diff(&before.Root, &after.Root); len(changes.Added)+len(changes.Modified)+len(changes.Removed)+
		len(changes.Renamed) > 0 {
		t.Errorf("%+v", changes)
	}
}

func TestCancelledWalk(t *testing.T) {
	dir := t.TempDir()
	for i := range 200 {
		write(t, filepath.Join(dir, fmt.Sprintf("d%d/f", i)), fmt.Sprint(i))
	}
	settled()
	before := walk(t, dir, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	after, err := Walk(ctx, dir, before.State, DefaultLimits())
	if !errors.Is(err, context.Canceled) || after == nil {
		t.Fatalf("%v", err)
	}
	if changes := Diff(&before.Root, &after.Root); len(changes.Added)+len(changes.Modified)+len(changes.Removed)+
		len(changes.Renamed) > 0 {
		t.Errorf("%d files are removed by a walk that was cancelled", len(changes.Removed))
	}
	if again := walk(t, dir, after.State); again.Read != 0 || again.Root.Digest != before.Root.Digest {
		t.Errorf("the cancelled walk forgot %d files", again.Read)
	}
}

// While files come and go, those that stay are never reported as removed.
func TestVanishingFiles(t *testing.T) {
	dir := t.TempDir()
	for i := range 100 {
		write(t, filepath.Join(dir, fmt.Sprintf("d%d/stays", i%10), fmt.Sprint(i)), fmt.Sprint(i))
	}
	before := walk(t, dir, nil)
	stop := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			name := filepath.Join(dir, fmt.Sprintf("d%d/goes/deep/file", i%10))
			os.MkdirAll(filepath.Dir(name), 0o755)
			os.WriteFile(name, fmt.Append(nil, i), 0o644)
			os.RemoveAll(filepath.Join(dir, fmt.Sprintf("d%d/goes", (i+5)%10)))
		}
	})
	defer group.Wait()
	defer close(stop)
	state, held := before.State, before.Root
	for range 100 {
		result, err := Walk(t.Context(), dir, state, DefaultLimits())
		var partial *PartialError
		if err != nil && !errors.As(err, &partial) {
			t.Fatal(err)
		}
		for _, f := range Diff(&held, &result.Root).Removed {
			if strings.Contains(f.Path, "/stays/") {
				t.Fatalf("%s is removed", f.Path)
			}
		}
		state, held = result.State, Carry(&held, &result.Root)
	}
}

func TestMissingMount(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mounted")
	write(t, filepath.Join(dir, "a"), "1")
	settled()
	before := walk(t, dir, nil)
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Walk(t.Context(), dir, before.State, DefaultLimits()); !errors.Is(err, errGone) {
		t.Errorf("another, empty folder: %v", err)
	}
	if err := os.Remove(filepath.Join(dir+".away", "a")); err != nil {
		t.Fatal(err)
	}
	emptied, err := Walk(t.Context(), dir+".away", before.State, DefaultLimits())
	if err != nil {
		t.Fatalf("the same folder, emptied: %v", err)
	}
	if changes := Diff(&before.Root, &emptied.Root); len(changes.Removed) != 1 {
		t.Errorf("%+v", changes)
	}
}

// A large folder takes the place of a link while it is looked at, and the other way round; the
// walk never leaves the tree.
func TestLinksAreNotFollowed(t *testing.T) {
	outside := t.TempDir()
	write(t, filepath.Join(outside, "d/secret"), "secret")
	dir := t.TempDir()
	write(t, filepath.Join(dir, "real/f"), "1")
	stop := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			os.Rename(filepath.Join(dir, "real"), filepath.Join(dir, "moved"))
			os.Symlink(filepath.Join(outside, "d"), filepath.Join(dir, "real"))
			os.Remove(filepath.Join(dir, "real"))
			os.Rename(filepath.Join(dir, "moved"), filepath.Join(dir, "real"))
		}
	})
	defer group.Wait()
	defer close(stop)
	for range 300 {
		result, err := Walk(t.Context(), dir, nil, DefaultLimits())
		var partial *PartialError
		if err != nil && !errors.As(err, &partial) {
			t.Fatal(err)
		}
		for path := range result.Root.Files() {
			if strings.Contains(path, "secret") {
				t.Fatalf("%s is outside of the tree", path)
			}
		}
	}
}
