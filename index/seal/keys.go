// Package seal keeps an index from whoever holds the bytes but not the key. Everything follows from
// one 32-byte key: the names under which objects lie, the marks that stand for words, files and
// chunks, a rotation of vectors, and the encryption of what is stored.
//
// What it protects: names, paths, symbols, ranges and vectors are sealed with AES-256-GCM, bound to
// the place where they stand, so that a store can neither read nor exchange nor change them unseen.
// Names of objects are HMACs.
//
// What it does not: the store sees how many objects a space has, how large they are, when they are
// written and which parts are read, and so roughly how much code there is, how much of it changes,
// and that two queries read the same place. It sees that two trees of a space are equal, as they
// have the same root, but not of two spaces. It can give back an older state of a pointer that it
// once held. The rotation keeps inner products: whoever gets hold of opened vectors can tell which
// chunks are alike, and with some pairs of text and vector the rotation itself. So it protects
// little by itself; the sealing does. The key of a snapshot follows from the snapshot's digest, so
// whoever knows the digest can read the snapshot's index.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash"
	"sync"
)

// Key is the secret from which all else is derived. It must be random, or as hard to guess as a
// digest of something secret.
type Key [32]byte

// ForSnapshot is the key for the index of a task's snapshot: who knows the
// snapshot's digest has it.
func ForSnapshot(digest string) Key {
	return Key(derive([]byte(digest), "snapshot"))
}

// Keys are what is derived from a Key. They are safe for concurrent use.
type Keys struct {
	names    sync.Pool // of hash.Hash: HMACs
	aead     cipher.AEAD
	rotation []byte // the seed of a rotation

	mu        sync.Mutex
	rotations map[int]*Rotation // by the number of dimensions
}

// derive makes 32 bytes of a secret for one use.
func derive(secret []byte, use string) []byte {
	key, err := hkdf.Key(sha256.New, secret, nil, "rondo index 1: "+use, sha256.Size)
	if err != nil {
		panic(err) // only for a length that no hash can make
	}
	return key
}

// New derives the keys.
func New(key Key) *Keys {
	names := derive(key[:], "names")
	block, err := aes.NewCipher(derive(key[:], "contents"))
	if err != nil {
		panic(err) // only for a key of another length
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return &Keys{
		names: sync.Pool{New: func() any { return hmac.New(sha256.New, names) }},
		aead:  aead, rotation: derive(key[:], "rotation"), rotations: map[int]*Rotation{},
	}
}

// mac is the HMAC of what a use says about parts; no two different lists of
// parts are the same to it.
func (k *Keys) mac(use string, parts ...[]byte) (sum [sha256.Size]byte) {
	h := k.names.Get().(hash.Hash)
	defer k.names.Put(h)
	h.Reset()
	h.Write([]byte(use))
	var length [9]byte // the first byte, 0, ends the use
	for _, part := range parts {
		binary.BigEndian.PutUint64(length[1:], uint64(len(part)))
		h.Write(length[:])
		h.Write(part)
	}
	h.Sum(sum[:0])
	return sum
}

// Space names everything under the key: 32 hexadecimal digits.
func (k *Keys) Space() string { return k.hex("space") }

// Repo names a repository: 32 hexadecimal digits.
func (k *Keys) Repo(name string) string { return k.hex("repository", []byte(name)) }

// Root names a tree by its Merkle root: 32 hexadecimal digits.
func (k *Keys) Root(merkle [32]byte) string { return k.hex("root", merkle[:]) }

func (k *Keys) hex(use string, parts ...[]byte) string {
	sum := k.mac(use, parts...)
	return hex.EncodeToString(sum[:16])
}

// Path marks a file's path.
func (k *Keys) Path(path string) [16]byte { return k.mark("path", []byte(path)) }

// Content marks a file's content by its digest.
func (k *Keys) Content(digest [32]byte) [16]byte { return k.mark("content", digest[:]) }

// Chunk marks what an embedder was given: equal marks have equal vectors.
func (k *Keys) Chunk(embedded []byte, embedder string) [16]byte {
	return k.mark("chunk", []byte(embedder), embedded)
}

func (k *Keys) mark(use string, parts ...[]byte) [16]byte {
	sum := k.mac(use, parts...)
	return [16]byte(sum[:16])
}

// Word marks a word.
func (k *Keys) Word(word string) uint64 { return k.word("word", word) }

// Symbol marks the name of a declaration, which is something else than the same word.
func (k *Keys) Symbol(name string) uint64 { return k.word("symbol", name) }

func (k *Keys) word(use, word string) uint64 {
	sum := k.mac(use, []byte(word))
	return binary.BigEndian.Uint64(sum[:])
}

// ErrSealed means that bytes cannot be opened. They are damaged, were sealed with another
// key, or for another place.
var ErrSealed = errors.New("cannot be opened: damaged, exchanged, or sealed with another key")

// Seal encrypts data for a place, without which it cannot be opened again. The same data
// look different each time.
func (k *Keys) Seal(data []byte, place string) []byte {
	return k.aead.Seal(nil, nil, data, []byte(place))
}

// Open decrypts what Seal made for the place: ErrSealed when it did not.
func (k *Keys) Open(sealed []byte, place string) ([]byte, error) {
	data, err := k.aead.Open(nil, nil, sealed, []byte(place))
	if err != nil {
		return nil, ErrSealed
	}
	return data, nil
}

// Rotation gives the key's rotation of vectors with a number of dimensions, at least 1.
func (k *Keys) Rotation(dimensions int) *Rotation {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.rotations[dimensions]
	if r == nil {
		r = newRotation(k.rotation, dimensions)
		k.rotations[dimensions] = r
	}
	return r
}
