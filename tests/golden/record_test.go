package golden

import (
	"archive/zip"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestRewrite records a run by a demo of this version.
func TestRewrite(t *testing.T) {
	if *rewrite == "" {
		t.Skip("-rewrite NAME records a run")
	}
	rondo, dir, small := filepath.Join(t.TempDir(), "rondo"), t.TempDir(), t.TempDir()
	for _, task := range []string{"shell-slugify", "shell-pack"} { // without a toolchain, and of a few bytes
		if err := os.CopyFS(filepath.Join(small, task), os.DirFS(filepath.Join("..", "..", "demo", "packs", "sample", task))); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"go", "build", "-o", rondo, "github.com/rondo-rl/rondo/cmd/rondo"},
		{rondo, "demo", "--steps", "3", "--groups-per-batch", "2", "--group-size", "4", "--seed", "3", "--tasks", small, "--quiet", "--dir", dir},
		{rondo, "archive", "seal", "demo-3", "--dir", dir},
	} {
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	if err := pack(filepath.Join("testdata", *rewrite+".zip"), filepath.Join(dir, "objects")); err != nil {
		t.Fatal(err)
	}
}

// pack puts the objects of a store in a directory into a file.
func pack(file, objects string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	z := zip.NewWriter(f)
	err = filepath.WalkDir(objects, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.Name() == ".rondo" { // the store's locks
			return fs.SkipDir
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		key, err := filepath.Rel(objects, path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		w, err := z.CreateHeader(&zip.FileHeader{Name: filepath.ToSlash(key), Method: zip.Deflate, Modified: time.Unix(0, 0).UTC()})
		if err == nil {
			_, err = w.Write(data)
		}
		return err
	})
	if err != nil {
		return err
	}
	return z.Close()
}
