package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"time"
)

// member is a file of an archive.
type member struct {
	name string
	path string // of the file to read
	mode int64
}

// writeTarGz writes an archive that depends on the members and the date alone.
func writeTarGz(file string, members []member, date time.Time) error {
	return create(file, func(w io.Writer) error {
		packed, err := gzip.NewWriterLevel(w, gzip.BestCompression)
		if err != nil {
			return err
		}
		return errors.Join(writeTar(packed, members, date), packed.Close())
	})
}

func writeTar(w io.Writer, members []member, date time.Time) error {
	archive := tar.NewWriter(w)
	for _, m := range members {
		text, err := os.ReadFile(m.path)
		if err != nil {
			return err
		}
		header := &tar.Header{Name: m.name, Mode: m.mode, Size: int64(len(text)), ModTime: date, Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(text); err != nil {
			return err
		}
	}
	return archive.Close()
}

// writeZip writes an archive that depends on the members and the date alone.
func writeZip(file string, members []member, date time.Time) error {
	return create(file, func(w io.Writer) error {
		archive := zip.NewWriter(w)
		for _, m := range members {
			text, err := os.ReadFile(m.path)
			if err != nil {
				return err
			}
			header := &zip.FileHeader{Name: m.name, Method: zip.Deflate, Modified: date.UTC()}
			header.SetMode(os.FileMode(m.mode))
			part, err := archive.CreateHeader(header)
			if err != nil {
				return err
			}
			if _, err := part.Write(text); err != nil {
				return err
			}
		}
		return archive.Close()
	})
}

// create writes a new file, and removes it if write fails.
func create(file string, write func(io.Writer) error) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if err := errors.Join(write(f), f.Chmod(0o644), f.Close()); err != nil {
		return errors.Join(err, os.Remove(file))
	}
	return nil
}
