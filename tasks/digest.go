package tasks

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"io/fs"

	"github.com/rondo-rl/rondo/sandbox/verifier"
)

// digest gives the hex SHA-256 of a task: its settings as JSON, then its three
// trees, every part preceded by its length so that no two tasks look alike.
// Only what decides what the agent meets and how it is scored counts.
func digest(task *Task) (string, error) {
	settings, err := json.Marshal(struct {
		Instruction, Workdir          string
		Toolchains                    []string
		AgentTimeout, VerifierTimeout int64
		Env, VerifierEnv              map[string]string
		MemoryMB                      int
		// so that tasks without any keep their digests
		Image          string          `json:",omitempty"`
		VerifierImage  string          `json:",omitempty"`
		Protected      []string        `json:",omitempty"`
		Separate       bool            `json:",omitempty"`
		Transcript     bool            `json:",omitempty"`
		Collect        []verifier.Hook `json:",omitempty"`
		RewardStrategy string          `json:",omitempty"`
		Steps          []stageSettings `json:",omitempty"`
	}{
		task.Instruction, task.Workdir, task.Toolchains, int64(task.AgentTimeout), int64(task.VerifierTimeout),
		task.Env, task.VerifierEnv, task.MemoryMB, task.Image, task.VerifierImage, task.Protected, task.Separate,
		task.Transcript, task.Collect,
		task.RewardStrategy, settingsOf(task.Stages),
	})
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	writePart(sum, "rondo task 1")
	writePart(sum, string(settings))
	parts := append([]part{{"snapshot", task.Snapshot}}, task.hidden()...)
	if task.Modules != nil { // so that tasks without any keep their digests
		parts = append(parts, part{"modules", task.Modules})
	}
	for _, s := range task.Stages {
		if s.Files != nil { // so that tasks without any keep their digests
			parts = append(parts, part{"steps/" + s.Name + "/workdir", s.Files})
		}
	}
	for _, part := range parts {
		writePart(sum, part.name)
		if part.fsys == nil {
			continue
		}
		if err := digestTree(sum, part.fsys); err != nil {
			return "", fmt.Errorf("digest of %s: %w", part.name, err)
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// part is one of the trees of a task.
type part struct {
	name string
	fsys fs.FS // nil where the task has none
}

// hidden are the trees that the agent does not see.
func (t *Task) hidden() []part {
	if len(t.Stages) == 0 {
		return []part{{"tests", t.Tests}, {"solution", t.Solution}}
	}
	var parts []part
	for _, s := range t.Stages {
		parts = append(parts, part{"steps/" + s.Name + "/tests", s.Tests},
			part{"steps/" + s.Name + "/solution", s.Solution})
	}
	return parts
}

// stageSettings are those of a stage.
type stageSettings struct {
	Name, Instruction             string
	AgentTimeout, VerifierTimeout int64
	VerifierEnv                   map[string]string
	MinReward                     map[string]float64
	Collect                       []verifier.Hook
}

func settingsOf(stages []Stage) (all []stageSettings) {
	for _, s := range stages {
		all = append(all, stageSettings{s.Name, s.Instruction, int64(s.AgentTimeout), int64(s.VerifierTimeout),
			s.VerifierEnv, s.MinReward, s.Collect})
	}
	return all
}

func digestTree(sum hash.Hash, fsys fs.FS) error {
	return fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		writePart(sum, name)
		writePart(sum, info.Mode().String())
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := fs.ReadLink(fsys, name)
			writePart(sum, target)
			return err
		case info.IsDir():
			return nil
		}
		return digestFile(sum, fsys, name, info.Size())
	})
}

func digestFile(sum hash.Hash, fsys fs.FS, name string, size int64) error {
	file, err := fsys.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	writeLength(sum, size)
	copied, err := io.Copy(sum, file)
	if err == nil && copied != size {
		err = fmt.Errorf("%s: changed while it was read", name)
	}
	return err
}

func writePart(sum hash.Hash, text string) {
	writeLength(sum, int64(len(text)))
	io.WriteString(sum, text)
}

func writeLength(sum hash.Hash, length int64) {
	var raw [8]byte
	binary.BigEndian.PutUint64(raw[:], uint64(length))
	sum.Write(raw[:])
}
