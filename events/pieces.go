package events

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"slices"
	"time"
)

// PieceSampled is a piece of an answer under way. The next request for the turn goes on behind it.
// The turn holds the tokens of all its pieces once it is sampled.
type PieceSampled struct {
	Turn int `json:"turn" jsonschema:"minimum=0"` // from 0
	// Prompt is the PromptDigest of what the answer follows. Pieces behind another
	// prompt are no part of it.
	Prompt string `json:"prompt" jsonschema:"maxLength=64"`
	// Engine is the kind of the server that sampled it. Servers of one kind alone go on with an
	// answer: others mean other distributions by their log-probabilities.
	Engine string `json:"engine" jsonschema:"enum=vllm,enum=sglang,enum=llamacpp"`
	// Offset counts the tokens of the answer that are in the pieces before this one.
	Offset   int       `json:"offset" jsonschema:"minimum=0"`
	TokenIDs []int32   `json:"token_ids,omitempty"`
	Logprobs []float32 `json:"logprobs,omitempty"`
	// VersionSpans say which policy versions sampled the piece's tokens, as the server reported it.
	VersionSpans []VersionSpan `json:"version_spans" jsonschema:"maxItems=256"`
	// StartedAt is when the request was sent that sampled the piece, and LatencyMS how long the
	// server took over the piece.
	StartedAt time.Time `json:"started_at"`
	LatencyMS float64   `json:"latency_ms"`
}

// HashTokens adds tokens to a digest.
func HashTokens(h hash.Hash, ids []int32) {
	text := make([]byte, 0, 4*len(ids))
	for _, id := range ids {
		text = binary.LittleEndian.AppendUint32(text, uint32(id))
	}
	h.Write(text)
}

// PromptDigest names a prompt by the SHA-256 of its tokens, each as 4 bytes, the lowest first.
func PromptDigest(ids []int32) string {
	h := sha256.New()
	HashTokens(h, ids)
	return hex.EncodeToString(h.Sum(nil))
}

// UnderWay is an answer that has begun, folded from its pieces. It is never changed.
type UnderWay struct {
	Turn     int
	Prompt   string
	Engine   string
	TokenIDs []int32
	Logprobs []float32
	Versions []VersionSpan
	// StartedAt is when the first request for it was sent, and Took how long the server
	// took over what there is.
	StartedAt time.Time
	Took      time.Duration
	// Parts counts the requests that sampled it.
	Parts int

	last time.Time // when the last of them was sent
}

// Add is the answer with one more piece. A piece without an offset begins an answer. u may be nil.
func (u *UnderWay) Add(p PieceSampled) (*UnderWay, error) {
	if n := len(p.TokenIDs); n == 0 || n != len(p.Logprobs) || len(p.VersionSpans) == 0 {
		return u, fmt.Errorf("%w: a piece of %d tokens has %d log-probabilities and %d spans of versions", ErrMalformed,
			n, len(p.Logprobs), len(p.VersionSpans))
	}
	if err := CheckVersionSpans(p.VersionSpans, len(p.TokenIDs)); err != nil {
		return u, fmt.Errorf("%w: a piece: %w", ErrMalformed, err)
	}
	next := UnderWay{Turn: p.Turn, Prompt: p.Prompt, Engine: p.Engine, StartedAt: p.StartedAt}
	if p.Offset > 0 {
		if u == nil || u.Turn != p.Turn || u.Prompt != p.Prompt || u.Engine != p.Engine || len(u.TokenIDs) != p.Offset {
			return u, fmt.Errorf("%w: a piece of turn %d goes on at token %d of an answer that is not there",
				ErrMalformed, p.Turn, p.Offset)
		}
		next = *u
	}
	next.TokenIDs, next.Logprobs = slices.Concat(next.TokenIDs, p.TokenIDs), slices.Concat(next.Logprobs, p.Logprobs)
	next.Versions = slices.Clone(next.Versions)
	for _, s := range p.VersionSpans {
		next.Versions = append(next.Versions, VersionSpan{Version: s.Version, Start: p.Offset + s.Start,
			End: p.Offset + s.End})
	}
	next.Versions = merged(next.Versions)
	next.Took += ofMilliseconds(p.LatencyMS)
	if next.Parts == 0 || !p.StartedAt.Equal(next.last) {
		next.Parts++
	}
	next.last = p.StartedAt
	return &next, nil
}

// progressTokens is how many tokens of an answer under way are progress. Less may be all that a
// server gives that dies in each try.
const progressTokens = 64

// Advanced reports whether pieces with so many tokens are recorded since the last failed
// try, or since the last turn.
func (r *Rollout) Advanced() bool { return r.advanced >= progressTokens }

// pieced folds a piece. Where the answer has advanced, tries that failed before count no more.
func (r *Rollout) pieced(e Event) error {
	p, err := Data[PieceSampled](e)
	if err == nil && p.Turn != len(r.Turns) {
		err = fmt.Errorf("%w: a piece of turn %d behind %d turns", ErrMalformed, p.Turn, len(r.Turns))
	}
	if err != nil {
		return err
	}
	r.UnderWay, err = r.UnderWay.Add(p)
	r.pieces++
	if r.advanced += len(p.TokenIDs); r.Advanced() {
		r.Tries = 0
	}
	return err
}

// Piece makes the event of the next piece.
func (r *Rollout) Piece(p PieceSampled) (Event, error) {
	p.Turn = len(r.Turns)
	return r.Next(PieceSampledType, fmt.Sprintf("%d-%d", p.Turn, r.pieces), p)
}
