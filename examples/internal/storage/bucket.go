package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// errMissing is the error for an object that does not exist.
var errMissing = errors.New("it does not exist")

// bucket is a bucket of an S3-compatible service. It is safe for concurrent use.
type bucket struct {
	core   minio.Core
	name   string
	prefix string
}

// stallLimit bounds the wait for the beginning of an answer.
const stallLimit = 2 * time.Minute

func openBucket(s *settings) (*bucket, error) {
	transport, err := minio.DefaultTransport(s.endpoint.Scheme == "https")
	if err != nil {
		return nil, err
	}
	transport.ResponseHeaderTimeout = stallLimit
	keys, err := s.credentials()
	if err != nil {
		return nil, err
	}
	lookup := minio.BucketLookupAuto
	if s.pathStyle {
		lookup = minio.BucketLookupPath
	}
	c, err := minio.New(s.endpoint.Host, &minio.Options{
		Creds: keys, Secure: s.endpoint.Scheme == "https", Region: s.region, BucketLookup: lookup, Transport: transport, MaxRetries: 5,
	})
	if err != nil {
		return nil, wrong("endpoint and bucket: %v", err)
	}
	return &bucket{core: minio.Core{Client: c}, name: s.bucketName, prefix: s.prefix}, nil
}

// credentials returns the keys of the connector. Without a connector, the environment or the machine gives them.
func (s *settings) credentials() (*credentials.Credentials, error) {
	switch {
	case (s.accessKey == "") != (s.secretKey == ""):
		return nil, wrong("the connector needs both access_key_secret and secret_key_secret")
	case s.role != "":
		own := credentials.Value{AccessKeyID: s.accessKey, SecretAccessKey: s.secretKey}
		if s.accessKey == "" {
			var err error
			if own, err = surroundings().GetWithContext(nil); err != nil {
				return nil, fmt.Errorf("the connector has assume_role without keys, and neither the environment nor the machine has any: %w", err)
			}
		}
		sts := s.endpoint.String()
		if strings.HasSuffix(s.endpoint.Host, ".amazonaws.com") {
			sts = "https://sts." + s.region + ".amazonaws.com"
		}
		return credentials.NewSTSAssumeRole(sts, credentials.STSAssumeRoleOptions{
			AccessKey: own.AccessKeyID, SecretKey: own.SecretAccessKey, SessionToken: own.SessionToken,
			Location: s.region, RoleARN: s.role, RoleSessionName: "dlite", ExternalID: s.externalID,
		})
	case s.accessKey != "":
		return credentials.NewStaticV4(s.accessKey, s.secretKey, ""), nil
	}
	return surroundings(), nil
}

// surroundings are the credentials of the environment or the machine, also of a web identity.
func surroundings() *credentials.Credentials {
	return credentials.NewChainCredentials([]credentials.Provider{
		&credentials.EnvAWS{}, &credentials.IAM{Client: &http.Client{Timeout: 10 * time.Second}},
	})
}

// list returns the objects whose names begin with a prefix, in the order of their names: at most limit.
func (b *bucket) list(ctx context.Context, prefix string, limit int) ([]minio.ObjectInfo, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var found []minio.ObjectInfo
	for o := range b.core.Client.ListObjects(ctx, b.name, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
		if o.Err != nil {
			return nil, b.explain(o.Err)
		}
		if len(found) == limit {
			return nil, fmt.Errorf("the bucket has more than %d objects that begin with %q", limit, prefix)
		}
		found = append(found, o)
	}
	return found, nil
}

// open reads an object by its whole name.
func (b *bucket) open(ctx context.Context, name string) (io.ReadCloser, error) {
	body, _, _, err := b.core.GetObject(ctx, b.name, name, minio.GetObjectOptions{})
	return body, b.explain(err)
}

// put writes an object. Readers see the old one or the new one.
func (b *bucket) put(ctx context.Context, name string, data []byte) error {
	_, err := b.core.Client.PutObject(ctx, b.name, path.Join(b.prefix, name), bytes.NewReader(data), int64(len(data)), minio.PutObjectOptions{
		ContentType: "application/octet-stream", DisableMultipart: true,
	})
	return b.explain(err)
}

// putFile writes an object from a file. It sends the parts of a large file in parallel.
func (b *bucket) putFile(ctx context.Context, name string, r io.Reader, size int64, kind string) error {
	_, err := b.core.Client.PutObject(ctx, b.name, path.Join(b.prefix, name), r, size, minio.PutObjectOptions{ContentType: kind, NumThreads: parallel})
	return b.explain(err)
}

// get reads an object with at most limit bytes.
func (b *bucket) get(ctx context.Context, name string, limit int64) ([]byte, error) {
	body, info, _, err := b.core.GetObject(ctx, b.name, path.Join(b.prefix, name), minio.GetObjectOptions{})
	if err != nil {
		return nil, b.explain(err)
	}
	defer func() { _ = body.Close() }()
	if info.Size > limit {
		return nil, fmt.Errorf("the object %s has %d bytes; it may have %d", name, info.Size, limit)
	}
	data, err := io.ReadAll(io.LimitReader(body, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("the object %s is larger than %d bytes", name, limit)
	}
	return data, err
}

// written returns when an object was written, and its size.
func (b *bucket) written(ctx context.Context, name string) (time.Time, int64, error) {
	info, err := b.core.StatObject(ctx, b.name, path.Join(b.prefix, name), minio.StatObjectOptions{})
	return info.LastModified, info.Size, b.explain(err)
}

// explain adds what to do to an error of the service.
func (b *bucket) explain(err error) error {
	if err == nil {
		return nil
	}
	switch code := minio.ToErrorResponse(err).Code; code {
	case minio.NoSuchKey:
		return errMissing
	case minio.NoSuchBucket:
		return fmt.Errorf("the bucket %s does not exist: create it, or correct the setting bucket", b.name)
	case minio.AccessDenied:
		return fmt.Errorf("the service denies access to the bucket %s: the user needs s3:GetObject and s3:PutObject, and s3:ListBucket to learn that an object is missing", b.name)
	}
	return fmt.Errorf("bucket %s: %w", b.name, err)
}
