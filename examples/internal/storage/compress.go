package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// codec compresses each part by itself, so that parts are compressed and restored in parallel. The parts
// one after the other are a usual file of the format. It is safe for concurrent use.
type codec struct {
	compress   func(data []byte) ([]byte, error)
	decompress func(data []byte) ([]byte, error) // at most partSize bytes
}

func newCodec(format string) (*codec, error) {
	switch format {
	case formatTar:
		same := func(data []byte) ([]byte, error) { return data, nil }
		return &codec{same, same}, nil
	case formatGzip:
		return &codec{zip, unzip}, nil
	case formatZstd:
		workers := min(parallel, runtime.GOMAXPROCS(0))
		e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(workers))
		if err != nil {
			return nil, err
		}
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(workers), zstd.WithDecoderMaxMemory(partSize))
		if err != nil {
			return nil, err
		}
		return &codec{
			func(data []byte) ([]byte, error) { return e.EncodeAll(data, nil), nil },
			func(data []byte) ([]byte, error) { return d.DecodeAll(data, nil) },
		}, nil
	}
	return nil, fmt.Errorf("its format %q is not known", format)
}

func zip(data []byte) ([]byte, error) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(data)
	err = errors.Join(err, w.Close())
	return b.Bytes(), err
}

func unzip(data []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(io.LimitReader(r, partSize+1))
	if err == nil && len(plain) > partSize {
		err = errors.New("it is larger than a part may be")
	}
	return plain, err
}
