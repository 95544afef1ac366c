package tasks

import (
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/rondo-rl/rondo/demo/packs"
)

// shipped are those that come with Rondo.
func shipped() map[string]fs.FS {
	return map[string]fs.FS{"small": packs.Small(), "sample": packs.Sample(), "large": packs.Large()}
}

func TestPacksLoad(t *testing.T) {
	for name, pack := range shipped() {
		loaded, err := LoadPack(pack)
		if err != nil {
			t.Fatal(err)
		}
		onDisk, err := LoadDir(filepath.Join("../demo/packs", name))
		if err != nil {
			t.Fatal(err)
		}
		if len(loaded) != len(onDisk) || len(loaded) == 0 {
			t.Fatalf("%s: %d tasks embedded, %d in the directory", name, len(loaded), len(onDisk))
		}
		for i, task := range loaded {
			if task.Digest != onDisk[i].Digest || task.Name != onDisk[i].Name {
				t.Errorf("%s: digest %s embedded, %s %s in the directory", task.Name, task.Digest,
					onDisk[i].Name, onDisk[i].Digest)
			}
			if task.Solution == nil {
				t.Errorf("%s: no solution", task.Name)
			}
			for _, warning := range task.Warnings {
				t.Errorf("%s: %s", task.Name, warning)
			}
		}
	}
}
