package sandbox_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
)

// use makes a snapshot ready that is released when the test ends.
func use(t *testing.T, snapshots *sandbox.Snapshots, data []byte) *sandbox.Snapshot {
	t.Helper()
	sum := sha256.Sum256(data)
	s, err := snapshots.Use(t.Context(), hex.EncodeToString(sum[:]),
		func(context.Context) (io.ReadCloser, error) { return sandbox.Bytes(data).Open() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Release)
	return s
}

func openSnapshots(t *testing.T, most int64) *sandbox.Snapshots {
	t.Helper()
	s, err := sandbox.OpenSnapshots(t.TempDir(), sandbox.RoleAgent, most)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// fileSystem is that of workspaces which begin with a snapshot.
func fileSystem() string {
	if os.Geteuid() == 0 {
		return "overlay"
	}
	return "copy"
}

// needOverlay skips what only the host's root can have.
func needOverlay(t *testing.T) {
	t.Helper()
	sandboxtest.Require(t)
	if os.Geteuid() != 0 {
		t.Skip("overlays that rename folders take the host's root")
	}
}

// edits is a script of random changes to a small tree, any of which may fail. What it does
// depends on the seed alone.
func edits(random *rand.Rand) string {
	path := func() string {
		parts := make([]string, 1+random.IntN(3))
		for i := range parts {
			parts[i] = string("abcde"[random.IntN(5)])
		}
		return strings.Join(parts, "/")
	}
	var script strings.Builder
	for range 12 {
		one, other := path(), path()
		script.WriteString([]string{
			"echo " + other + " > " + one, "echo more >> " + one, "mv -T " + one + " " + other,
			"mv " + one + " " + other, "rm -rf " + one,
			"mkdir -p " + one, "ln -sfn " + other + " " + one, "ln -f " + one + " " + other, "chmod 700 " + one,
			"chmod 555 " + one, "chmod 000 " + one, "touch " + one,
			"rm -rf " + one + "; echo file > " + one, "rm -rf " + one + "; mkdir " + one,
			"rm -rf /tmp/y; cp -r " + one + " /tmp/y; mv /tmp/y " + other, "rmdir " + one, "true > " + one,
			"rm -f " + one + "; echo " + one + " > " + one, "mv " + one + " x; mv x " + one,
		}[random.IntN(19)] + "\n")
	}
	return "exec 2>/dev/null\n" + script.String() + "true"
}

// TestOverlayLikeCopy: whatever is done to a workspace, its change is the same, byte for byte, over
// a shared snapshot and in a copy, and can be laid over either.
func TestOverlayLikeCopy(t *testing.T) {
	t.Parallel()
	needOverlay(t)
	files := map[string]string{}
	for _, name := range []string{"a/a/a", "a/a/b", "a/b", "b/a/c", "b/b/b", "c", "d/d/d", "d/e",
		"e/a", "e/b/a", "e/b/b"} {
		files[name] = name + "\n"
	}
	data, snapshots := sandboxtest.Pack(t, files), openSnapshots(t, 1<<30)
	ctx := t.Context()
	over := func(shared bool) *sandbox.Sandbox {
		spec := sandbox.Spec{Snapshot: use(t, nil, data)}
		if shared {
			spec.Snapshot = use(t, snapshots, data)
		}
		sb := sandboxtest.New(t, spec)
		if want := map[bool]string{true: "overlay", false: "copy"}[shared]; sb.FSMode() != want {
			t.Fatalf("the workspace is %s, want %s", sb.FSMode(), want)
		}
		return sb
	}
	different := 0
	for seed := range uint64(10) {
		random := rand.New(rand.NewPCG(seed, 7))
		shared, copied := over(true), over(false)
		var last []byte
		for range 3 { // turns
			script := edits(random)
			output(t, shared, script)
			output(t, copied, script)
			got, want := changes(t, shared), changes(t, copied)
			if !bytes.Equal(got, want) {
				gotIn, _ := sandbox.Contents(sandbox.Bytes(got))
				wantIn, _ := sandbox.Contents(sandbox.Bytes(want))
				t.Fatalf("seed %d: after\n%s\nthe change over the shared snapshot is\n%v\nand that of the copy\n%v",
					seed, script, gotIn, wantIn)
			}
			if !bytes.Equal(got, last) {
				different++
			}
			last = got
		}
		again := over(true)
		if err := again.Apply(ctx, last); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(changes(t, again), last) {
			t.Fatalf("seed %d: the change comes out differently where it was laid over the snapshot", seed)
		}
		for _, sb := range []*sandbox.Sandbox{shared, copied, again} {
			if err := sb.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if different < 20 {
		t.Errorf("%d of 30 turns changed anything", different)
	}
	untouched := over(true)
	if got := changes(t, untouched); got != nil {
		t.Errorf("other workspaces have changed the snapshot that they share")
	}
}

// TestSharedSnapshots: what one sandbox does is not seen in another one, folders can be renamed,
// and the snapshot's disk is no way around the limit.
func TestSharedSnapshots(t *testing.T) {
	t.Parallel()
	needOverlay(t)
	data := sandboxtest.Pack(t, map[string]string{"src/a.sh": "#!/bin/sh\necho a\n", "src/b": "b", "link/x": "x",
		"big": strings.Repeat("0", 3<<20)})
	snapshots := openSnapshots(t, 1<<30)
	spec := sandbox.Spec{Snapshot: use(t, snapshots, data), Limits: sandbox.Limits{DiskBytes: 2 << 20}}
	first, second := sandboxtest.New(t, spec), sandboxtest.New(t, spec)
	output(t, first, "mv src moved; echo x >> moved/b; rm -r link; ln -s /etc link")
	if got := output(t, first,
		"stat -c '%U %a %n' . moved moved/a.sh; sh moved/a.sh; cat moved/b"); got != "root 755 .\nroot 755 moved\nroot 755 moved/a.sh\na\nbx" {
		t.Errorf("it has %q", got)
	}
	if got := output(t, second, "ls; cat src/b link/x"); got != "big\nlink\nsrc\nbx" {
		t.Errorf("the other one has %q", got)
	}
	for _, command := range []string{"chmod 600 big",
		"head -c 1500000 /dev/zero > /tmp/x && head -c 1500000 /dev/zero > y"} {
		if result := run(t, second, sh(command)); result.ExitCode == 0 {
			t.Errorf("%s goes beyond the limit of the disk", command)
		}
	}
	output(t, second, "rm -f /tmp/x y; test $(stat -c %s big) = 3145728")
	for _, escape := range []string{"mount -o remount,rw /app", "umount /app",
		"setfattr -n trusted.overlay.redirect -v /etc src", "mknod src/dev c 0 0"} {
		if result := run(t, second, sh(escape)); result.ExitCode == 0 {
			t.Errorf("%s is possible", escape)
		}
	}
	unpackedOnce := 0
	for range 3 {
		sum := sha256.Sum256(data)
		again, err := snapshots.Use(t.Context(), hex.EncodeToString(sum[:]),
			func(context.Context) (io.ReadCloser, error) { unpackedOnce++; return sandbox.Bytes(data).Open() })
		if err != nil {
			t.Fatal(err)
		}
		again.Release()
	}
	if unpackedOnce != 0 {
		t.Errorf("it is fetched %d times more", unpackedOnce)
	}
}

// TestSnapshotsInAFolder: one is unpacked once by several processes that want it at the same
// time, again where it was damaged or left half unpacked, and thrown away when it is not used
// and others need the room.
func TestSnapshotsInAFolder(t *testing.T) {
	t.Parallel()
	needOverlay(t)
	dir := t.TempDir()
	var fetched atomic.Int64
	pack := func(name string) (digest string, fetch sandbox.Fetch) {
		data := sandboxtest.Pack(t, map[string]string{name: strings.Repeat(name, 100_000), "other": "x"})
		sum := sha256.Sum256(data)
		return hex.EncodeToString(sum[:]), func(context.Context) (io.ReadCloser,
			error) {
			fetched.Add(1)
			return sandbox.Bytes(data).Open()
		}
	}
	open := func(most int64) *sandbox.Snapshots {
		s, err := sandbox.OpenSnapshots(dir, sandbox.RoleAgent, most)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	a, fetchA := pack("a")
	half := filepath.Join(dir, a+".half")
	if err := errors.Join(os.MkdirAll(filepath.Join(half, "tree"), 0o755),
		os.WriteFile(filepath.Join(half, "tree/a"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	var users sync.WaitGroup
	held := make(chan *sandbox.Snapshot, 8)
	for range 4 { // each with locks of its own, as processes have
		snapshots := open(1 << 30)
		for range 2 {
			users.Go(func() {
				s, err := snapshots.Use(t.Context(), a, fetchA)
				if err != nil {
					t.Error(err)
					return
				}
				held <- s
			})
		}
	}
	users.Wait()
	close(held)
	if _, err := os.Stat(half); fetched.Load() != 1 || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("fetched %d times; what was half unpacked: %v", fetched.Load(), err)
	}
	small := open(1)
	kept := filepath.Join(dir, a, "tree/a")
	b, fetchB := pack("b")
	other, err := small.Use(t.Context(), b, fetchB)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("a snapshot that is used is thrown away: %v", err)
	}
	for s := range held {
		s.Release()
		s.Release()
	}
	other.Release()
	stay := func() (names []string) {
		for _, name := range []string{a, b} {
			if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
				names = append(names, name)
			}
		}
		return names
	}
	for range 100 { // a process that another test is just starting has the locks, too, for a moment
		if len(stay()) == 0 {
			break
		}
		if other, err = small.Use(t.Context(), b, fetchB); err != nil {
			t.Fatal(err)
		}
		other.Release()
	}
	if names := stay(); len(names) > 0 {
		t.Errorf("snapshots that nobody uses stay: %q", names)
	}

	for what, damage := range map[string]func() error{
		"a file changed": func() error { return os.WriteFile(kept, []byte("?"), 0o644) },
		"a file gone":    func() error { return os.Remove(kept) },
		"a file more":    func() error { return os.WriteFile(kept+"x", nil, 0o644) },
		"no base":        func() error { return os.Truncate(filepath.Join(dir, a, "base"), 10) },
	} {
		t.Run(what, func(t *testing.T) {
			first, err := open(1<<30).Use(t.Context(), a, fetchA)
			if err != nil {
				t.Fatal(err)
			}
			first.Release()
			if err := damage(); err != nil {
				t.Fatal(err)
			}
			before := fetched.Load()
			again, err := open(1<<30).Use(t.Context(), a, fetchA)
			if err != nil {
				t.Fatal(err)
			}
			sb := sandboxtest.New(t, sandbox.Spec{Snapshot: again})
			if got := output(t, sb, "ls; head -c 3 a; stat -c %s a"); got != "a\nother\naaa100000" ||
				fetched.Load() != before+1 || changes(t, sb) != nil {
				t.Errorf("%s: fetched %d times more, %q", what, fetched.Load()-before, got)
			}
			sb.Close()
			again.Release()
		})
	}
	lie := func(context.Context) (io.ReadCloser, error) { return fetchB(t.Context()) }
	if _, err := open(1<<30).Use(t.Context(), strings.Repeat("0", 64), lie); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("an archive of another digest: %v", err)
	}
	if _, err := open(1<<30).Use(t.Context(), "../x", lie); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("a digest that is a path: %v", err)
	}
}

// TestSlowSnapshot: a snapshot whose unpacking takes an hour is ready then, for who unpacks it and
// for another process that waits.
func TestSlowSnapshot(t *testing.T) {
	t.Parallel()
	needOverlay(t)
	dir := t.TempDir()
	data := sandboxtest.Pack(t, map[string]string{"a": "b"})
	sum := sha256.Sum256(data)
	synctest.Test(t, func(t *testing.T) {
		var fetched atomic.Int64
		slow := func(context.Context) (io.ReadCloser, error) {
			fetched.Add(1)
			time.Sleep(time.Hour)
			return sandbox.Bytes(data).Open()
		}
		var users sync.WaitGroup
		for range 2 {
			s, err := sandbox.OpenSnapshots(dir, sandbox.RoleAgent, 1<<30)
			if err != nil {
				t.Fatal(err)
			}
			users.Go(func() {
				used, err := s.Use(t.Context(), hex.EncodeToString(sum[:]), slow)
				if err != nil {
					t.Error(err)
					return
				}
				used.Release()
			})
		}
		users.Wait()
		if fetched.Load() != 1 {
			t.Errorf("fetched %d times", fetched.Load())
		}
	})
}
