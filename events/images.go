package events

import (
	"slices"

	"github.com/rondo-rl/rondo/storage"
)

// View is what a turn's prompt adds to what the model saw.
type View struct {
	after            *int
	begins, noTokens bool // a segment; without its tokens
	images           []storage.Image
}

// View is what the turn shows.
func (t *TurnSampled) View() View {
	s := View{begins: t.NewSegment, noTokens: t.TextOnly}
	if t.After != nil && *t.After >= 0 && *t.After < t.Turn {
		s.after = t.After
	}
	s.begins = s.begins || s.after == nil
	for _, m := range t.Prompt {
		s.images = append(s.images, m.Images...)
	}
	return s
}

// SegmentImages are the images of each sample of an episode with such turns, without those that its
// agent has left behind. The prompt of a segment that goes on with an earlier turn has that one's
// images, too, if it has tokens.
func SegmentImages(turns []View, left []int, textOnly bool) (samples [][]storage.Image) {
	of := make([]int, len(turns))
	for i, t := range turns {
		if slices.Contains(left, i) {
			continue
		}
		for t.after != nil && slices.Contains(left, *t.after) { // it takes that one's words over
			behind := turns[*t.after]
			t.images, t.after, t.begins = slices.Concat(behind.images, t.images), behind.after, true
		}
		if t.begins {
			of[i] = len(samples)
			samples = append(samples, nil)
			if !textOnly && !t.noTokens {
				samples[of[i]] = imagesUpTo(turns, t.after)
			}
		} else {
			of[i] = of[*t.after]
		}
		samples[of[i]] = append(samples[of[i]], t.images...)
	}
	return samples
}

func imagesUpTo(turns []View, at *int) (images []storage.Image) {
	for ; at != nil; at = turns[*at].after {
		images = slices.Concat(turns[*at].images, images)
	}
	return images
}

// OtherImages is the first of a trajectory's samples whose images are not those that the turns
// show, in their order; -1 if there is none.
func OtherImages(samples []storage.Sample, shown [][]storage.Image) int {
	for i := range max(len(samples), len(shown)) {
		var has, want []storage.Image
		if i < len(samples) {
			has = samples[i].Images
		}
		if i < len(shown) {
			want = shown[i]
		}
		if !slices.EqualFunc(has, want, storage.Image.Same) {
			return i
		}
	}
	return -1
}
