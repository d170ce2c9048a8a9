# The delegate, and the CAs that it trusts. "make images" builds it.
FROM scratch
COPY ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY delegate /delegate
USER 65532:65532
ENTRYPOINT ["/delegate"]
CMD ["server"]
