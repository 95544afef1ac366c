package episode

import (
	"crypto/sha256"
	"encoding/json"
	"maps"
	"slices"

	"github.com/rondo-rl/rondo/events"
)

// SaidIn is the digest of what a turn said and called. The ids of calls are the server's.
func SaidIn(turn events.TurnSampled) [sha256.Size]byte {
	calls := make([][2]string, len(turn.ToolCalls))
	for i, c := range turn.ToolCalls {
		calls[i] = [2]string{c.Name, c.Arguments}
	}
	text, _ := json.Marshal([]any{turn.Content, calls}) // texts are always JSON
	return sha256.Sum256(text)
}

// Parting is the first turn in which two rollouts said something else, nil for none. Where one goes
// on behind the other's end, it is that one's.
func Parting(own, its map[int][sha256.Size]byte) *int {
	a, b := slices.Sorted(maps.Keys(own)), slices.Sorted(maps.Keys(its))
	same := 0
	for same < min(len(a), len(b)) && own[a[same]] == its[b[same]] {
		same++
	}
	switch {
	case same < len(a):
		return &a[same]
	case same < len(b):
		return &b[same]
	}
	return nil
}
