package dashboard

import (
	"context"
	"net/http"
	"strconv"

	"github.com/rondo-rl/rondo/inference/images"
	"github.com/rondo-rl/rondo/storage"
)

// imagePolicy lets an image that is opened by itself do nothing.
const imagePolicy = "default-src 'none'; sandbox"

// image serves an image of a rollout's messages. Who stated the message said what the image is, so
// that its header is asked again.
func (d *Dashboard) image(w http.ResponseWriter, r *http.Request) error {
	e, _, err := d.read(r)
	if err != nil {
		return err
	}
	for _, m := range e.Trajectory.Messages {
		for _, i := range m.Images {
			if i.SHA256 == r.PathValue("digest") {
				return d.serve(w, r, i)
			}
		}
	}
	return errNone
}

func (d *Dashboard) serve(w http.ResponseWriter, r *http.Request, i storage.Image) error {
	ctx, cancel := context.WithTimeout(r.Context(), answerTime)
	defer cancel()
	data, err := storage.GetBlob(ctx, d.log.Store(), i.Ref)
	if storage.IsUnusable(err) {
		return &refusal{http.StatusNotFound, "The store does not have the image any more."}
	}
	if err != nil {
		return err
	}
	if is, err := images.Read(data); err != nil || !is.Same(i) {
		return &refusal{http.StatusNotFound, "The object is no image of the kind that its message states."}
	}
	h := w.Header()
	h.Set("Content-Type", i.MediaType)
	h.Set("Content-Length", strconv.Itoa(len(data)))
	h.Set("Content-Security-Policy", imagePolicy)
	h.Set("Cache-Control", "private, max-age=86400, immutable")
	w.Write(data) // to who is gone, in vain
	return nil
}
