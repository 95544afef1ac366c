package merkle

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

var errTooLarge = errors.New("too large")

// readTries is how often a file is read that changes meanwhile. One that still does is taken as it
// was read last, and not remembered: the stamp is then younger than the walk.
const readTries = 3

// content reads a regular file whole, with the stamp that belongs to what was read.
func (w *walker) content(at openFolder, name string, limit int64) ([]byte, stamp, error) {
	for try := 1; ; try++ {
		content, before, after, err := readOnce(at, name, limit)
		if err != nil {
			return nil, stamp{}, fmt.Errorf("read: %w", err)
		}
		if before == after && before.size == int64(len(content)) {
			return content, after, nil
		}
		if try == readTries {
			after.changed = w.began.UnixNano() // the content is of no one moment: racy
			after.size = int64(len(content))
			return content, after, nil
		}
	}
}

func readOnce(at openFolder, name string, limit int64) (content []byte, before, after stamp, err error) {
	if before, err = statIn(at.root, at.list, name); err != nil {
		return nil, before, after, err
	}
	if !before.regular {
		return nil, before, after, errReplaced
	}
	// Without blocking: a pipe may have taken the file's place.
	f, err := at.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, before, after, err
	}
	defer f.Close()
	opened, err := statOf(f)
	if err != nil {
		return nil, before, after, err
	}
	if !opened.regular || opened.inode != before.inode || opened.device != before.device {
		return nil, before, after, errReplaced
	}
	if opened.size > limit {
		return nil, before, after, errTooLarge
	}
	content = make([]byte, opened.size+1) // one more byte shows that it grew
	n, err := io.ReadFull(f, content)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, before, after, err
	}
	if int64(n) > limit {
		return nil, before, after, errTooLarge
	}
	after, err = statOf(f)
	return content[:n], before, after, err
}

func digestOf(content []byte) Digest { return sha256.Sum256(content) }
