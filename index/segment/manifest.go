package segment

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rondo-rl/rondo/index/seal"
	"github.com/rondo-rl/rondo/storage"
)

// manifest is what an index consists of. Its clear part, for garbage collection, holds the root
// and the segments' digests.
type manifest struct {
	Embedder   string    `json:"embedder"`
	Dimensions int       `json:"dimensions"`
	Time       time.Time `json:"time"`
	// Written is when it was, by the writer's clock: one that is replaced is
	// written again where it is old.
	Written  time.Time       `json:"written"`
	Figures  json.RawMessage `json:"figures,omitempty"`
	Segments []entry         `json:"segments"`
}

const (
	manifestMagic = "RONDOMF1"
	rootBytes     = 16
	clearHead     = len(manifestMagic) + rootBytes + 2
)

// references are what the clear part of a manifest names.
type references struct {
	root    string
	digests [][32]byte
}

// encodeManifest lays a manifest out: magic, root, number and digests of the segments, and
// sealed for them the rest.
func encodeManifest(keys *seal.Keys, root string, m manifest, parts []*part) ([]byte, error) {
	id, err := hex.DecodeString(root)
	if err != nil || len(id) != rootBytes {
		return nil, fmt.Errorf("%w: root %.80q was not made by seal.Keys.Root", ErrChange, root)
	}
	if len(parts) > maxSegments {
		return nil, fmt.Errorf("%w: %d segments (limit %d)", storage.ErrTooLarge, len(parts), maxSegments)
	}
	out := append([]byte(manifestMagic), id...)
	out = binary.BigEndian.AppendUint16(out, uint16(len(parts)))
	m.Segments = []entry{}
	for _, p := range parts {
		out = append(out, p.digest[:]...)
		m.Segments = append(m.Segments, p.entry)
	}
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	out = append(out, keys.Seal(pack(text, true), manifestPlace(out))...)
	if len(out) > storage.MaxPointer || len(text) > maxPlain {
		return nil, fmt.Errorf("%w: a manifest of %d bytes (limit %d): the index has too many chunks",
			storage.ErrTooLarge, len(out), storage.MaxPointer)
	}
	return out, nil
}

func manifestPlace(clear []byte) string { return "rondo manifest 1 " + string(clear) }

// decodeClear reads the clear part of a manifest, which may come from anywhere.
func decodeClear(data []byte) (r references, clear []byte, err error) {
	if len(data) < clearHead || string(data[:len(manifestMagic)]) != manifestMagic {
		return r, nil, fmt.Errorf("%w: no manifest of an index, or of another version", storage.ErrCorrupt)
	}
	r.root = hex.EncodeToString(data[len(manifestMagic):][:rootBytes])
	n := int(binary.BigEndian.Uint16(data[clearHead-2:]))
	end := clearHead + 32*n
	if n > maxSegments || len(data) < end {
		return r, nil, fmt.Errorf("%w: a manifest of %d bytes with %d segments (limit %d)", storage.ErrCorrupt,
			len(data), n, maxSegments)
	}
	for i := range n {
		r.digests = append(r.digests, [32]byte(data[clearHead+32*i:]))
	}
	return r, data[:end], nil
}

// decodeManifest opens and checks a manifest.
func decodeManifest(keys *seal.Keys, data []byte) (r references, m manifest, parts []*part, err error) {
	r, clear, err := decodeClear(data)
	if err != nil {
		return r, m, nil, err
	}
	packed, err := keys.Open(data[len(clear):], manifestPlace(clear))
	if err != nil {
		return r, m, nil, fmt.Errorf("%w: the manifest %w", storage.ErrCorrupt, err)
	}
	m, parts, err = decodeSealed(packed, r.digests)
	return r, m, parts, err
}

// decodeSealed reads what was sealed in a manifest.
func decodeSealed(packed []byte, digests [][32]byte) (m manifest, parts []*part, err error) {
	text, err := unpack(packed, maxPlain)
	if err != nil {
		return m, nil, err
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, nil, fmt.Errorf("%w: manifest: %w", storage.ErrCorrupt, err)
	}
	if len(m.Segments) != len(digests) || len(m.Embedder) > MaxEmbedder || m.Dimensions < 0 ||
		m.Dimensions > MaxDimensions || m.Dimensions == 0 && len(digests) > 0 {
		return m, nil, fmt.Errorf("%w: manifest: %d segments and %d digests, %d dimensions", storage.ErrCorrupt,
			len(m.Segments), len(digests), m.Dimensions)
	}
	for i, e := range m.Segments {
		p, err := newPart(digests[i], m.Dimensions, e)
		if err != nil {
			return m, nil, err
		}
		parts = append(parts, p)
	}
	m.Segments = nil
	return m, parts, nil
}

// validate refuses an update that no manifest could hold.
func (u *Update) validate() error {
	if len(u.Figures) > MaxFigures || len(u.Figures) > 0 && !json.Valid(u.Figures) {
		return fmt.Errorf("%w: figures: %d bytes (limit %d), or no JSON", ErrChange, len(u.Figures), MaxFigures)
	}
	if id, err := hex.DecodeString(u.Root); err != nil || len(id) != rootBytes || hex.EncodeToString(id) != u.Root {
		return fmt.Errorf("%w: root %.80q was not made by seal.Keys.Root", ErrChange, u.Root)
	}
	return nil
}

// isGone reports whether an error says that there is no object.
func isGone(err error) bool { return errors.Is(err, storage.ErrNotFound) }
