package golden

import (
	"archive/zip"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	storagedir "github.com/rondo-rl/rondo/storage/dir"
)

// TestRewrite records a run by a demo of this version.
func TestRewrite(t *testing.T) {
	if *rewrite == "" {
		t.Skip("-rewrite NAME records a run")
	}
	rondo, dir, small := filepath.Join(t.TempDir(), "rondo"), t.TempDir(), t.TempDir()
	for _, task := range []string{"shell-slugify", "shell-pack"} { // without a toolchain, and of a few bytes
		if err := os.CopyFS(filepath.Join(small, task),
			os.DirFS(filepath.Join("..", "..", "demo", "packs", "sample", task))); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"go", "build", "-o", rondo, "github.com/rondo-rl/rondo/cmd/rondo"},
		{rondo, "demo", "--steps", "3", "--groups-per-batch", "2", "--group-size", "4", "--seed", "3", "--tasks", small,
			"--quiet", "--dir", dir},
		{rondo, "archive", "seal", "demo-3", "--dir", dir},
	} {
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	if err := pack(t.Context(), filepath.Join("testdata", *rewrite+".zip"), filepath.Join(dir, "objects")); err != nil {
		t.Fatal(err)
	}
}

// pack puts the objects of a store in a directory into a file.
func pack(ctx context.Context, file, objects string) (err error) {
	store, err := storagedir.Open(objects)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	z := zip.NewWriter(f)
	for o, err := range store.List(ctx, "") {
		if err != nil {
			return err
		}
		data, err := store.Get(ctx, o.Key)
		if err != nil {
			return err
		}
		w, err := z.CreateHeader(&zip.FileHeader{Name: o.Key, Method: zip.Deflate, Modified: time.Unix(0, 0).UTC()})
		if err == nil {
			_, err = w.Write(data)
		}
		if err != nil {
			return err
		}
	}
	return z.Close()
}
