package events

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/rondo-rl/rondo/storage"
)

// sampledTurn makes a turn with tokens as models sample them: ids of a vocabulary of 151,936
// by Zipf's law, with passages that repeat, and log-probabilities that are mostly near 0 and
// use all of their 24 bits.
func sampledTurn(seed uint64, prompt, sampled int) TurnSampled {
	const vocabulary = 151_936
	rng := rand.New(rand.NewPCG(seed, 7))
	zipf, names := rand.NewZipf(rng, 1.1, 8, vocabulary-1), rand.New(rand.NewPCG(1, 1)).Perm(vocabulary)
	all := make([]int32, 0, prompt+sampled)
	for len(all) < prompt+sampled {
		if len(all) > 0 && rng.IntN(25) == 0 {
			from := rng.IntN(len(all))
			length := min(prompt+sampled-len(all), len(all)-from, 1+int(24*rng.ExpFloat64()))
			all = append(all, all[from:from+length]...)
			continue
		}
		all = append(all, int32(names[zipf.Uint64()]))
	}
	t := TurnSampled{Turn: 3, Content: "an answer", PromptDelta: all[:prompt:prompt], TokenIDs: all[prompt:],
		Logprobs: make([]float32, sampled), PolicyVersion: 4, FinishReason: "stop"}
	for i := range t.Logprobs {
		t.Logprobs[i] = -float32(math.Exp(2.5*rng.NormFloat64() - 3))
	}
	return t
}

// packedPer is what each sampled token takes: the body beside that of the same
// turn without sampled tokens.
func packedPer(t testing.TB, turn TurnSampled) (packed, plain float64) {
	t.Helper()
	without := turn
	without.TokenIDs, without.Logprobs = nil, nil
	size := func(turn TurnSampled) (packed, plain int) {
		body, err := Encode(turn)
		text, err2 := json.Marshal(turn)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		return len(body), len(text)
	}
	p, q := size(turn)
	p0, q0 := size(without)
	n := float64(len(turn.TokenIDs))
	return float64(p-p0) / n, float64(q-q0) / n
}

// TestBytesOfSampledTokens: a token that was sampled takes at most 6 bytes on the log, id and
// log-probability with all of its bits.
func TestBytesOfSampledTokens(t *testing.T) {
	for _, c := range []struct {
		prompt, sampled int
		most            float64
	}{{600, 100, 6}, {600, 400, 5.5}, {600, 2000, 5.2}, {100, 16000, 5}, {0, 400, 6}} {
		packed, plain := packedPer(t, sampledTurn(1, c.prompt, c.sampled))
		t.Logf("%5d tokens behind %3d: %.2f bytes for each, %.2f as JSON", c.sampled, c.prompt, packed, plain)
		if packed > c.most {
			t.Errorf("%d tokens behind %d take %.2f bytes for each, want at most %g", c.sampled,
				c.prompt, packed, c.most)
		}
	}
}

// TestPackedRoundTrip: what is packed comes back bit by bit, and reads as JSON as it would without.
func TestPackedRoundTrip(t *testing.T) {
	odd := sampledTurn(1, 20, 30)
	odd.TokenIDs[0], odd.TokenIDs[1] = 0, math.MaxInt32
	odd.Logprobs[0], odd.Logprobs[1], odd.Logprobs[2] = 0, float32(math.Copysign(0, -1)), -math.MaxFloat32
	odd.Logprobs[3] = -math.SmallestNonzeroFloat32
	onlyPrompt := TurnSampled{PromptDelta: odd.PromptDelta}
	for name, want := range map[string]TurnSampled{"odd values": odd, "a prompt alone": onlyPrompt,
		"long": sampledTurn(2, 9, 200_000), "no logprobs": {TokenIDs: odd.TokenIDs}} {
		e, err := New("r", TurnSampledType, "g000001-0", "3", want)
		if err != nil || !bytes.HasPrefix(e.Data, packedMagic) {
			t.Fatalf("%s: it is not packed (%v)", name, err)
		}
		got, err := Data[TurnSampled](e)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: it comes back as another one (%v)", name, err)
		}
		for i := range want.Logprobs {
			if math.Float32bits(got.Logprobs[i]) != math.Float32bits(want.Logprobs[i]) {
				t.Fatalf("%s: log-probability %d is %x, want %x", name, i, got.Logprobs[i], want.Logprobs[i])
			}
		}
		text, err := e.JSON()
		plain, _ := json.Marshal(want)
		if err != nil || !bytes.Equal(text, plain) {
			t.Errorf("%s: as JSON it is another one (%v)", name, err)
		}
		var part struct{ Turn int }
		if err := Decode(e.Data, &part); err != nil || part.Turn != want.Turn {
			t.Errorf("%s: a part of it: %v, %v", name, part, err)
		}
	}
}

// TestPackedCopies: a fork's turns are packed in one body.
func TestPackedCopies(t *testing.T) {
	want := RolloutCopied{Turns: []TurnSampled{sampledTurn(1, 5, 50), {Turn: 1, TextOnly: true}, sampledTurn(2, 1, 7)},
		Tools: []ToolsCompleted{{Turn: 0, Runner: "r", Workspace: &storage.Ref{Key: "blobs/w", SHA256: "d", Size: 7}}}}
	e, err := New("r", RolloutCopiedType, "g000002-0", "0", want)
	if err != nil || !bytes.HasPrefix(e.Data, packedMagic) {
		t.Fatalf("it is not packed (%v)", err)
	}
	if got, err := Data[RolloutCopied](e); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("it comes back as %+v (%v)", got, err)
	}
	// The collection of garbage and the audit look for references without the tokens.
	document, err := Document(e.Data)
	if refs, err2 := storage.References(document); err != nil || err2 != nil ||
		!reflect.DeepEqual(refs, []storage.Ref{*want.Tools[0].Workspace}) {
		t.Errorf("the references in it are %v (%v, %v)", refs, err, err2)
	}
}

// TestPlainTokens: few tokens, those that outsiders wrote, and those beyond the bound are JSON.
func TestPlainTokens(t *testing.T) {
	few := sampledTurn(1, 3, 4)
	body, err := Encode(few)
	plain, _ := json.Marshal(few)
	if err != nil || !bytes.Equal(body, plain) {
		t.Errorf("few tokens become %q (%v)", body, err)
	}
	many := sampledTurn(1, 30, 40)
	plain, _ = json.Marshal(many)
	if got, err := Data[TurnSampled](Event{Data: plain}); err != nil || !reflect.DeepEqual(got, many) {
		t.Errorf("JSON is read as %+v (%v)", got, err)
	}
	many.Logprobs[3] = float32(math.NaN())
	if _, err := Encode(many); err == nil {
		t.Error("a log-probability that is no number is written")
	}
}

// TestHostileColumns: bodies that nobody wrote are malformed, and take no
// more memory than the bound.
func TestHostileColumns(t *testing.T) {
	zeros := func(n int) []byte {
		e, _ := zstd.NewWriter(nil)
		return e.EncodeAll(make([]byte, n), nil)
	}
	body := func(document string, numbers []uint64, frame []byte) []byte {
		b := binary.AppendUvarint(append(bytes.Clone(packedMagic), layout), uint64(len(document)))
		b = append(b, document...)
		for _, n := range numbers {
			b = binary.AppendUvarint(b, n)
		}
		return append(b, frame...)
	}
	numbers, _ := split32([]float32{float32(math.Inf(-1))})
	infinite, _ := appendBlocks(nil, append(planesOf([]uint32{1}), numbers...)...)
	whole := body(`{"turn":1}`, []uint64{1, 0, 2, 0, 0}, zeros(8))
	if got, err := Data[TurnSampled](Event{Data: whole}); err != nil || len(got.TokenIDs) != 2 {
		t.Fatalf("the body that is whole: %+v, %v", got, err)
	}
	for name, good := range map[string][]byte{
		"negative":   body(`{}`, []uint64{1, 0, 9, 9, 0}, zeros(36+8+27)),
		"with signs": body(`{}`, []uint64{1, 0, 9, 9, 1}, zeros(36+8+27+2)),
	} {
		if got, err := Data[TurnSampled](Event{Data: good}); err != nil || len(got.Logprobs) != 9 ||
			math.Signbit(float64(got.Logprobs[8])) != (name == "negative") {
			t.Fatalf("%s: %+v, %v", name, got, err)
		}
	}
	for name, hostile := range map[string][]byte{
		"a document beyond the body": append(bytes.Clone(packedMagic), layout, 0xff, 0xff, 3, '{', '}'),
		"an endless length": append(append(bytes.Clone(packedMagic), layout),
			bytes.Repeat([]byte{0xff}, 20)...),
		"no length":                    append(bytes.Clone(packedMagic), layout),
		"no layout":                    packedMagic,
		"four bytes for each number":   body(`{}`, []uint64{1, 0, 9, 9, 0}, zeros(72)),
		"a byte of signs fewer":        body(`{}`, []uint64{1, 0, 9, 9, 1}, zeros(36+8+27+1)),
		"unknown signs":                body(`{}`, []uint64{1, 0, 9, 9, 2}, zeros(36+8+27+2)),
		"a layout to come":             append(bytes.Clone(packedMagic), 2, 2, '{', '}', 0),
		"more turns than the document": body(`{}`, []uint64{2, 0, 0, 0, 0, 0, 0, 0}, zeros(0)),
		"a column beyond the bound":    body(`{}`, []uint64{1, 0, 1 << 62, 0, 0}, zeros(16)),
		"columns beyond it together":   body(`{}`, []uint64{1, maxPacked / 2, maxPacked / 2, 1, 0}, zeros(16)),
		"tokens in the document":       body(`{"token_ids":[1]}`, []uint64{1, 0, 2, 0, 0}, zeros(8)),
		"a bomb":                       body(`{}`, []uint64{1, 0, 2, 0, 0}, zeros(64<<20)),
		"one byte more":                body(`{}`, []uint64{1, 0, 2, 0, 0}, zeros(9)),
		"one byte fewer":               body(`{}`, []uint64{1, 0, 2, 0, 0}, zeros(7)),
		"no frame":                     body(`{}`, []uint64{1, 0, 2, 0, 0}, nil),
		"rubbish behind the frame":     append(bytes.Clone(whole), 1, 2, 3, 4, 5),
		"an infinite log-probability":  body(`{}`, []uint64{1, 0, 1, 1, 0}, infinite),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := Data[TurnSampled](Event{Data: hostile})
		runtime.ReadMemStats(&after)
		if !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %d ids, %v", name, len(got.TokenIDs), err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 4<<20 {
			t.Errorf("%s: it takes %d bytes of memory", name, took)
		}
	}
}

func FuzzColumns(f *testing.F) {
	for _, turn := range []TurnSampled{sampledTurn(1, 3, 40), {TokenIDs: make([]int32, 20)}} {
		body, err := Encode(turn)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	f.Add([]byte(`{"turn":1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		turn, err := Data[TurnSampled](Event{Data: body})
		if err != nil {
			return
		}
		if len(turn.TokenIDs)+len(turn.PromptDelta)+len(turn.Logprobs) > maxPacked &&
			bytes.HasPrefix(body, packedMagic) {
			t.Fatalf("%d tokens", len(turn.TokenIDs))
		}
		again, err := Encode(turn)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Data[TurnSampled](Event{Data: again}); err != nil ||
			!reflect.DeepEqual(normal(got), normal(turn)) {
			t.Fatalf("%+v becomes %+v, %v", turn, got, err)
		}
	})
}

// normal is a turn whose lists are nil where they are empty, and whose times are comparable.
func normal(t TurnSampled) string {
	text, err := json.Marshal(t)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func BenchmarkTokens(b *testing.B) {
	turn := sampledTurn(1, 600, 400)
	plain, _ := json.Marshal(turn)
	packed, _ := Encode(turn)
	b.Run("encode", func(b *testing.B) {
		for b.Loop() {
			_, _ = Encode(turn)
		}
	})
	b.Run("encode-json", func(b *testing.B) {
		for b.Loop() {
			_, _ = json.Marshal(turn)
		}
	})
	for name, body := range map[string][]byte{"decode": packed, "decode-json": plain} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				_, _ = Data[TurnSampled](Event{Data: body})
			}
		})
	}
}

// TestRecordedColumns: a packed body is read as the Python client reads it,
// whose test has the same file.
func TestRecordedColumns(t *testing.T) {
	body, err := os.ReadFile("testdata/turn.packed")
	text, err2 := os.ReadFile("testdata/turn.json")
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	got, err := Event{Type: TurnSampledType, Data: body}.JSON()
	if err != nil || !bytes.Equal(got, bytes.TrimSpace(text)) {
		t.Errorf("it reads %s (%v)", got, err)
	}
	var turn TurnSampled
	if err := json.Unmarshal(text, &turn); err != nil || !reflect.DeepEqual(turn, sampledTurn(5, 40, 60)) {
		t.Errorf("the file holds %+v (%v)", turn, err)
	}
}
