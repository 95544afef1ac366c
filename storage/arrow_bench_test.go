package storage_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/rondo-rl/rondo/storage"
)

// BenchmarkArrowFiles compares encoding and decoding with a copy of the same uncompressed bytes and
// with writing them as uncompressed Arrow, all in one run: B/token of the file, and how many times
// longer than each of the two it takes.
func BenchmarkArrowFiles(b *testing.B) {
	trajectory, batch := makeTrajectory(30, 500), makeBatch(64, 8000)
	tokens := 0
	for _, m := range trajectory.Messages {
		tokens += len(m.TokenIDs)
	}
	b.Run("trajectory", func(b *testing.B) {
		compare(b, tokens, func() ([]byte, error) { return storage.EncodeTrajectory(trajectory) },
			func(file []byte) error { _, err := storage.DecodeTrajectory(file); return err })
	})
	b.Run("batch", func(b *testing.B) {
		compare(b, 64*8000, func() ([]byte, error) { return storage.EncodeBatch(batch) },
			func(file []byte) error { _, err := storage.DecodeBatch(file); return err })
	})
}

// BenchmarkOwnRecords writes a short trajectory, and beside it the same compressed record batch by
// the Arrow library alone: library/own is how many times longer the library takes.
func BenchmarkOwnRecords(b *testing.B) {
	trajectory := makeTrajectory(8, 1024/18)
	file, err := storage.EncodeTrajectory(trajectory)
	if err != nil {
		b.Fatal(err)
	}
	record := readRecord(b, file)
	var own, library time.Duration
	for b.Loop() {
		own += timed(func() { _, err = storage.EncodeTrajectory(trajectory) })
		if err != nil {
			b.Fatal(err)
		}
		library += timed(func() { writePlain(b, record, ipc.WithZstd()) })
	}
	b.ReportMetric(float64(library)/float64(own), "library/own")
}

func compare(b *testing.B, tokens int, encode func() ([]byte, error), decode func([]byte) error) {
	file, err := encode()
	if err != nil {
		b.Fatal(err)
	}
	record := readRecord(b, file)
	plain := writePlain(b, record)
	target := make([]byte, len(plain))
	var encoding, decoding, copying, writing time.Duration
	b.SetBytes(int64(len(plain)))
	for b.Loop() {
		encoding += timed(func() { _, err = encode() })
		if err != nil {
			b.Fatal(err)
		}
		decoding += timed(func() { err = decode(file) })
		if err != nil {
			b.Fatal(err)
		}
		copying += timed(func() { copy(target, plain) })
		writing += timed(func() { writePlain(b, record) })
	}
	b.ReportMetric(float64(len(file))/float64(tokens), "B/token")
	b.ReportMetric(float64(len(plain))/float64(tokens), "rawB/token")
	b.ReportMetric(float64(encoding)/float64(copying), "encode/memcpy")
	b.ReportMetric(float64(decoding)/float64(copying), "decode/memcpy")
	b.ReportMetric(float64(encoding)/float64(writing), "encode/rawIPC")
	b.ReportMetric(float64(len(plain))*float64(b.N)/1e6/encoding.Seconds(), "encodeMB/s")
	b.ReportMetric(float64(len(plain))*float64(b.N)/1e6/decoding.Seconds(), "decodeMB/s")
}

func timed(call func()) time.Duration {
	start := time.Now()
	call()
	return time.Since(start)
}

func readRecord(b *testing.B, file []byte) arrow.RecordBatch {
	b.Helper()
	reader, err := ipc.NewFileReader(bytes.NewReader(file))
	if err != nil {
		b.Fatal(err)
	}
	record, err := reader.RecordBatch(0)
	if err != nil {
		b.Fatal(err)
	}
	return record
}

func writePlain(b *testing.B, record arrow.RecordBatch, options ...ipc.Option) []byte {
	b.Helper()
	var file bytes.Buffer
	writer, err := ipc.NewFileWriter(&file, append(options, ipc.WithSchema(record.Schema()))...)
	if err != nil {
		b.Fatal(err)
	}
	if err := writer.Write(record); err != nil {
		b.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		b.Fatal(err)
	}
	return file.Bytes()
}
