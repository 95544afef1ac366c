package sandbox

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
)

// buildOutput is what an error tells of a build's output, in bytes of its end.
const buildOutput = 4000

// BuildImage makes a container image of a folder by a Dockerfile in it with this machine's Docker
// engine. It answers false where there is an image of that name already. What the Dockerfile runs
// has the engine's network and rights, not a sandbox's.
func BuildImage(ctx context.Context, name, dockerfile string, folder fs.FS) (bool, error) {
	if !validImage.MatchString(name) {
		return false, fmt.Errorf("container image %.100q: %w: not the name of an image", name, ErrInvalid)
	}
	if _, _, err := inspect(ctx, name); err == nil {
		return false, nil
	}
	if err := HasEngine(ctx); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, pullTime)
	defer cancel()
	command := exec.CommandContext(ctx, "docker", "build", "--tag", name, "--label", "rondo", "--file", dockerfile, "-")
	reader, writer := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		err := packBuild(writer, folder)
		writer.CloseWithError(err)
		sent <- err
	}()
	command.Stdin = reader
	out, err := command.CombinedOutput()
	reader.Close()
	if sendErr := <-sent; sendErr != nil && !errors.Is(sendErr, io.ErrClosedPipe) {
		return false, fmt.Errorf("send the files to docker build: %w", sendErr)
	}
	if err != nil {
		return false, fmt.Errorf("docker build: %w: %s", err, bytes.TrimSpace(out[max(0, len(out)-buildOutput):]))
	}
	return true, nil
}

// packBuild writes a folder as docker build reads one from its standard input.
func packBuild(to io.Writer, folder fs.FS) error {
	archive := tar.NewWriter(to)
	return errors.Join(archive.AddFS(folder), archive.Close())
}
