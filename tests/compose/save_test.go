package compose_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestSaveImages builds the images of the Dockerfile, and saves them with those that the chart and
// its bucket need into the folder RONDO_IMAGES: tests/kubernetes has a node run them.
func TestSaveImages(t *testing.T) {
	folder := os.Getenv("RONDO_IMAGES")
	if folder == "" {
		t.Skip("RONDO_IMAGES names no folder to save images in")
	}
	needEngine(t)
	cache := cacheDir(t)
	useCompose(t, cache)
	standInImages(t, cache)
	s := newStack(t, nil)
	version := find(t, filepath.Join(root, "deploy/helm/rondo/Chart.yaml"), `appVersion: "(\S+)"`)
	s.compose("--profile", "cli", "build", "rondo", "toolrunner")
	save := []string{"save", "--output", filepath.Join(folder, "images.tar")}
	for built, name := range map[string]string{"rondo:local": "rondo", "rondo-runner:local": "rondo-runner"} {
		name = "registry.example.org/" + name + ":" + version
		must(t, docker("tag", built, name))
		t.Cleanup(func() { exec.Command("docker", "image", "rm", built, name).Run() })
		save = append(save, name)
	}
	save = append(save, "versity/versitygw:"+find(t, filepath.Join(root, "compose.yaml"),
		`image: versity/versitygw:(\S+)`))
	save = append(save, "nats:"+find(t, filepath.Join(root, "deploy/helm/rondo/values.yaml"), `image: \{tag: (\S+)\}`))
	must(t, docker(save...))
}
