package merkle

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// benchFiles is the size of the tree that the figures are about.
const benchFiles = 100_000

// benchTree makes a tree of small files, 50 to a folder.
func benchTree(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	for i := range benchFiles {
		folder := filepath.Join(dir, fmt.Sprintf("pkg%02d/sub%02d", i/5000, i/50%100))
		if i%50 == 0 {
			if err := os.MkdirAll(folder, 0o755); err != nil {
				b.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("file%06d.go", i)),
			fmt.Appendf(nil, "package p\n\nconst n = %d\n", i), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	settled()
	return dir
}

// lstatAll looks at every entry, as little as there is to do: the limit that
// a walk is compared with.
func lstatAll(b *testing.B, dir string, group *sync.WaitGroup, workers chan struct{}) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		b.Error(err)
		return
	}
	for _, entry := range entries {
		name := dir + "/" + entry.Name()
		if !entry.IsDir() {
			if _, err := os.Lstat(name); err != nil {
				b.Error(err)
			}
			continue
		}
		select {
		case workers <- struct{}{}:
			group.Go(func() { defer func() { <-workers }(); lstatAll(b, name, group, workers) })
		default:
			lstatAll(b, name, group, workers)
		}
	}
}

// BenchmarkTree measures on one tree of 100 000 files: the bare parallel lstat of all, the first
// walk, the load of the state, the walk that finds nothing changed, the whole of verifying (load
// and walk), and the difference of two trees.
func BenchmarkTree(b *testing.B) {
	dir := benchTree(b)
	name := filepath.Join(b.TempDir(), "state")
	first := walk(b, dir, nil)
	if err := first.State.Save(name, itself); err != nil {
		b.Fatal(err)
	}
	perFile := func(b *testing.B) {
		b.ReportMetric(float64(benchFiles)*float64(b.N)/b.Elapsed().Seconds(), "files/s")
	}
	b.Run("lstat", func(b *testing.B) {
		for b.Loop() {
			var group sync.WaitGroup
			lstatAll(b, dir, &group, make(chan struct{}, 1))
			group.Wait()
		}
		perFile(b)
	})
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			walk(b, dir, nil)
		}
		perFile(b)
	})
	b.Run("load", func(b *testing.B) {
		for b.Loop() {
			if _, err := LoadState(name, asItIs); err != nil {
				b.Fatal(err)
			}
		}
		info, err := os.Stat(name)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(info.Size())/benchFiles, "B/file")
	})
	b.Run("unchanged", func(b *testing.B) {
		for b.Loop() {
			if r := walk(b, dir, first.State); r.Read != 0 || r.Files != benchFiles {
				b.Fatalf("%d of %d files read", r.Read, r.Files)
			}
		}
		perFile(b)
	})
	b.Run("verify", func(b *testing.B) {
		for b.Loop() {
			known, err := LoadState(name, asItIs)
			if err != nil {
				b.Fatal(err)
			}
			if r := walk(b, dir, known); r.Read != 0 || r.Changed {
				b.Fatalf("%d files read", r.Read)
			}
		}
		perFile(b)
	})
	b.Run("diff", func(b *testing.B) {
		if err := os.WriteFile(filepath.Join(dir, "pkg03/sub07/new.go"), []byte("package p\n"), 0o644); err != nil {
			b.Fatal(err)
		}
		now := walk(b, dir, first.State)
		for b.Loop() {
			if c := Diff(&first.Root, &now.Root); len(c.Added) != 1 {
				b.Fatal("the new file is not found")
			}
		}
	})
}
