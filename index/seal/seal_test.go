package seal_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/rondo-rl/rondo/index/seal"
)

func key(b byte) seal.Key { return seal.Key(bytes.Repeat([]byte{b}, 32)) }

// TestMarks: what is derived is the same again, and differs between keys, uses and contents.
func TestMarks(t *testing.T) {
	one := func(k seal.Key) map[string]string {
		keys := seal.New(k)
		all := map[string]string{"space": keys.Space()}
		for _, text := range []string{"", "a", "b", "ab", "space"} {
			all["repo "+text] = keys.Repo(text)
			all["path "+text] = fmt.Sprintf("%x", keys.Path(text))
			all["word "+text] = fmt.Sprintf("%016x................", keys.Word(text))
			all["symbol "+text] = fmt.Sprintf("%016x................", keys.Symbol(text))
			for _, embedder := range []string{"", "a", "b"} {
				all["chunk "+text+" by "+embedder] = fmt.Sprintf("%x", keys.Chunk([]byte(text), embedder))
			}
			var digest [32]byte
			copy(digest[:], text)
			all["root "+text] = keys.Root(digest)
			all["content "+text] = fmt.Sprintf("%x", keys.Content(digest))
		}
		return all
	}
	seen := map[string]string{}
	for b := range byte(3) {
		marks, again := one(key(b)), one(key(b))
		for name, mark := range marks {
			if again[name] != mark {
				t.Errorf("%s is %s, and then %s", name, mark, again[name])
			}
			if other, taken := seen[mark]; taken || len(mark) != 32 {
				t.Errorf("key %d: %s is %q, as is %s", b, name, mark, other)
			}
			seen[mark] = fmt.Sprintf("key %d: %s", b, name)
		}
	}
}

// TestForeverTheSame: an index that was written once must be found and read by later versions.
func TestForeverTheSame(t *testing.T) {
	snapshot := seal.ForSnapshot("0123")
	keys := seal.New(key(7))
	rotated := keys.Rotation(3).Apply([]float32{1, 0, 0})
	sealed, err := hex.DecodeString(sealedOnce)
	if err != nil {
		t.Fatal(err)
	}
	opened, err := keys.Open(sealed, "a place")
	got := fmt.Sprintf("%x %s %016x %.4f %s %v", snapshot[:4], keys.Space(), keys.Word("word"), rotated, opened, err)
	if got != once {
		t.Errorf("got  %s\nwant %s\n(sealed: %x)", got, once, keys.Seal([]byte("content"), "a place"))
	}
}

func TestSeal(t *testing.T) {
	keys := seal.New(key(1))
	for _, data := range [][]byte{{}, []byte("x"), bytes.Repeat([]byte("content "), 1000)} {
		sealed := keys.Seal(data, "here")
		if len(sealed) != len(data)+28 {
			t.Errorf("%d bytes became %d", len(data), len(sealed))
		}
		if len(data) > 3 && bytes.Contains(sealed, data[:4]) {
			t.Error("the content stands in what is sealed")
		}
		if bytes.Equal(sealed, keys.Seal(data, "here")) {
			t.Error("sealing twice gave the same bytes")
		}
		if opened, err := keys.Open(sealed, "here"); err != nil || !bytes.Equal(opened, data) {
			t.Errorf("%d bytes: opened %d, %v", len(data), len(opened), err)
		}
		refused := map[string][]byte{"elsewhere": sealed, "": sealed}
		for place, sealed := range refused {
			if _, err := keys.Open(sealed, place); !errors.Is(err, seal.ErrSealed) {
				t.Errorf("opened at %q: %v", place, err)
			}
		}
		if _, err := seal.New(key(2)).Open(sealed, "here"); !errors.Is(err, seal.ErrSealed) {
			t.Errorf("opened with another key: %v", err)
		}
		for i := range sealed[:min(len(sealed), 100)] {
			if _, err := keys.Open(sealed[:i], "here"); !errors.Is(err, seal.ErrSealed) {
				t.Fatalf("opened the first %d bytes: %v", i, err)
			}
			changed := bytes.Clone(sealed)
			changed[i] ^= 1
			if _, err := keys.Open(changed, "here"); !errors.Is(err, seal.ErrSealed) {
				t.Fatalf("opened with a bit changed in byte %d: %v", i, err)
			}
		}
	}
}

// TestRotation: inner products stay, whatever the number of dimensions; the coordinates are others,
// and others for each key.
func TestRotation(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, dimensions := range []int{1, 2, 3, 7, 64, 100, 192, 255, 256, 768, 1023} {
		one, other := seal.New(key(1)).Rotation(dimensions), seal.New(key(2)).Rotation(dimensions)
		a, b := normal(random, dimensions), normal(random, dimensions)
		ra, rb, oa := one.Apply(a), one.Apply(b), other.Apply(a)
		for name, pair := range map[string][2]float64{"a·a": {dot(a, a), dot(ra, ra)},
			"a·b": {dot(a, b), dot(ra, rb)}} {
			if math.Abs(pair[0]-pair[1]) > 1e-5*math.Sqrt(dot(a, a)*dot(b, b)) {
				t.Errorf("%d dimensions: %s is %g, and %g when rotated", dimensions, name, pair[0], pair[1])
			}
		}
		if dimensions >= 64 {
			for name, pair := range map[string][2][]float32{"itself": {a, ra}, "with another key": {ra, oa}} {
				if c := dot(pair[0], pair[1]) / dot(a, a); math.Abs(c) > 0.6 {
					t.Errorf("%d dimensions: rotated, %s is alike by %g", dimensions, name, c)
				}
			}
		}
	}
}

// TestRotationSpreads: a vector with one coordinate has weight everywhere afterwards.
func TestRotationSpreads(t *testing.T) {
	for _, dimensions := range []int{96, 192, 256, 768} {
		r := seal.New(key(3)).Rotation(dimensions)
		for at := range dimensions {
			v := make([]float32, dimensions)
			v[at] = 1
			for i, x := range r.Apply(v) {
				if math.Abs(float64(x)) > 7/math.Sqrt(float64(dimensions)) {
					t.Fatalf("%d dimensions: of coordinate %d, %g stand at %d", dimensions, at, x, i)
				}
			}
		}
	}
}

func normal(random *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(random.NormFloat64())
	}
	return v
}

func dot(a, b []float32) (sum float64) {
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

func BenchmarkRotation(b *testing.B) {
	r := seal.New(key(1)).Rotation(192)
	v := normal(rand.New(rand.NewPCG(1, 2)), 192)
	for b.Loop() {
		r.Apply(v)
	}
}

func BenchmarkWord(b *testing.B) {
	keys := seal.New(key(1))
	for b.Loop() {
		keys.Word("identifier")
	}
}

const (
	sealedOnce = "10bbd093e05b479849a6b38521ddc75b27e2e67b4b8e4114a79dea4dfe2e37f5eace29"
	once       = "1277df2a 423fe1bf2e983c214ac54e719198270d 2ae31fba867cc285 [-0.7071 0.7071 0.0000] content <nil>"
)
