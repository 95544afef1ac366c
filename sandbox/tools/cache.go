package tools

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"strings"

	"github.com/rondo-rl/rondo/sandbox/toolset"
)

// Version is that of the tools: what another version answered to the same call says nothing. It is
// raised when a tool answers differently.
const Version = 1

// Cache answers calls from what the same calls answered before.
type Cache struct {
	// Tree identifies the contents of the workspace as the turn begins, against the snapshot;
	// "" is the snapshot itself.
	Tree string
	// Effect is the greatest one of the turns before.
	Effect Effect
	// Deterministic are the command lines that the task marks.
	Deterministic []string
	// Settled says that the turns before ran no other commands; see Set.Settled.
	Settled bool
	// Closed says that all that the workspace shows is in Tree: no link of it may lead out,
	// and no process changes it.
	Closed bool
	// Answer finds the result of a call. It may run for several calls at the same time.
	Answer func(context.Context, Key) (Result, bool)
}

// Key is what the answer to a call follows from, beside the snapshot and the sandbox's kind.
type Key struct {
	// Tool is the tool's name in its set, whatever the model knows it by.
	Tool string
	// Tree identifies the contents of the workspace.
	Tree string
	// Arguments are canonical, and without the explanation; of a command, they are its line.
	Arguments string
	Limits    Limits
	// Shell is what a command's shell begins with.
	Shell string `json:",omitempty"`
}

// memory follows what is known of the workspace through a turn. Calls that change it run alone.
type memory struct {
	known   *Cache
	tree    string
	effect  Effect
	settled bool
	lost    bool // a call of this turn may have changed anything
}

func newMemory(known *Cache) memory {
	if known == nil {
		return memory{}
	}
	return memory{known: known, tree: known.Tree, effect: known.Effect, settled: known.Settled}
}

// lookUp gives the key of a call whose answer follows from what is known, and what to record of it.
func (w *work) lookUp(t *tool, call Call, index int) (*Key, string) {
	m := w.memory
	if m.known == nil {
		return nil, ""
	}
	if t == nil || index >= MaxCalls || m.lost {
		return nil, toolset.CacheBypass
	}
	if line, ok := marked(t, m.known.Deterministic, call); ok && m.settled {
		return &Key{Tool: t.key, Tree: m.tree, Arguments: line, Limits: t.Limits, Shell: w.shell()}, toolset.CacheMiss
	}
	if !t.ReadOnly || !m.determines(t.Follows) {
		return nil, toolset.CacheBypass
	}
	arguments, ok := canonical(t, w.sb.Workdir(), call.Arguments)
	if !ok {
		return nil, toolset.CacheBypass
	}
	return &Key{Tool: t.key, Tree: m.tree, Arguments: arguments, Limits: t.Limits}, toolset.CacheMiss
}

// determines reports whether an answer that follows from something can be known.
func (m memory) determines(f Follows) bool {
	switch f {
	case FromSnapshot:
		return m.effect == Nothing && m.tree == ""
	case FromFiles:
		return m.effect != Anything
	case FromWorkspace:
		return m.effect != Anything || m.known.Closed
	}
	return false
}

// begins notes, before any of the calls beside it, that from now on something may change
// the sandbox at any time.
func (w *work) begins(t *tool) {
	if t == nil || !t.stays {
		return
	}
	w.state.Background = true
	w.memory.effect, w.memory.lost = Anything, true
}

// changed notes what a call may have changed. What a file tool makes of a known tree is known, too,
// where it did not fail half way.
func (w *work) changed(t *tool, call Call, failed bool) {
	m := &w.memory
	if m.known == nil || t == nil || t.ReadOnly || t.Effect == Nothing {
		return
	}
	effect := t.effectOf(w.sb.Workdir(), call)
	m.effect = min(m.effect, effect)
	if _, ok := marked(t, m.known.Deterministic, call); effect == Anything && !ok {
		m.settled = false
	}
	arguments, ok := canonical(t, w.sb.Workdir(), call.Arguments)
	if effect == Anything || failed || !ok {
		m.lost = true
		return
	}
	sum := sha256.Sum256([]byte(m.tree + "\x00" + t.key + "\x00" + arguments))
	m.tree = "after:" + hex.EncodeToString(sum[:])
}

// effectOf is the effect of a call: a file tool that is told of a file outside of the
// workspace may change anything.
func (t *tool) effectOf(workdir string, call Call) Effect {
	if t.stays {
		return Anything
	}
	if t.ReadOnly {
		return Nothing
	}
	if t.Effect == OneFile {
		if _, ok := canonical(t, workdir, call.Arguments); !ok {
			return Anything
		}
	}
	return t.Effect
}

// EffectOf is the greatest effect that calls may have had in a workspace.
func (s *Set) EffectOf(workdir string, calls []Call) Effect {
	effect := Nothing
	for _, call := range s.repairCalls(calls) {
		if t := s.lookup(call.Name); t != nil {
			effect = min(effect, t.effectOf(workdir, call))
		}
	}
	return effect
}

// canonical writes arguments in one form, and reports whether they are an object with arguments of
// the schema alone, spelled as they are there, whose paths lie in the workspace.
func canonical(t *tool, workdir, arguments string) (string, bool) {
	decoder := json.NewDecoder(strings.NewReader(orEmpty(arguments)))
	decoder.UseNumber()
	var given map[string]any
	if decoder.Decode(&given) != nil || given == nil {
		return "", false
	}
	if _, err := decoder.Token(); err != io.EOF {
		return "", false
	}
	known, _ := t.schema["properties"].(map[string]any)
	for name, value := range given {
		if _, ok := known[name]; !ok || paths[name] && !allWithin(workdir, value) {
			return "", false
		}
	}
	delete(given, "explanation")
	var out bytes.Buffer
	if json.NewEncoder(&out).Encode(given) != nil {
		return "", false
	}
	return out.String(), true
}

// paths are the arguments that name files and folders.
var paths = map[string]bool{"target_file": true, "file_path": true, "path": true, "target_directory": true,
	"target_directories": true, "paths": true}

func allWithin(workdir string, value any) bool {
	switch v := value.(type) {
	case string:
		_, ok := relativePath(workdir, v)
		return ok
	case []any:
		for _, one := range v {
			if _, isText := one.(string); !isText || !allWithin(workdir, one) {
				return false
			}
		}
		return true
	}
	return false
}
