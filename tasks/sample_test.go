package tasks

import (
	"testing"
)

func TestSamplePackLoads(t *testing.T) {
	loaded, err := LoadPack(Sample())
	if err != nil {
		t.Fatal(err)
	}
	onDisk, err := LoadDir("sample")
	if err != nil {
		t.Fatal(err)
	}
	if len(loaded) != len(onDisk) {
		t.Fatalf("%d tasks embedded, %d in the directory", len(loaded), len(onDisk))
	}
	for i, task := range loaded {
		if task.Digest != onDisk[i].Digest || task.Name != onDisk[i].Name {
			t.Errorf("%s: digest %s embedded, %s %s in the directory", task.Name, task.Digest, onDisk[i].Name, onDisk[i].Digest)
		}
		if task.Solution == nil {
			t.Errorf("%s: no solution", task.Name)
		}
		for _, warning := range task.Warnings {
			t.Errorf("%s: %s", task.Name, warning)
		}
	}
}
