"""Other spellings of kernels of the table: the same mathematics in other words."""

from __future__ import annotations

from benchmarks.hand.entry import Entry

SPELLINGS = (
    Entry(
        "im2col by five axes",
        """kernel k(X: float[16,34,34]) -> (A: float[32,32,16,3,3]) {
  A[y,x,c,r,s] = X[c,y+r,x+s];
}""",
        like="im2col by // and %",
    ),
    Entry(
        "softmax in one statement",
        """kernel k(X: float[512,512]) -> (Y: float[512,512]) {
  Y[i,j] = exp(X[i,j] - max[c](X[i,c])) / sum[c](exp(X[i,c] - max[l](X[i,l])));
}""",
        like="softmax",
    ),
    Entry(
        "layer norm in one statement",
        """kernel k(X: float[512,512], G: float[512], B: float[512]) -> (Y: float[512,512]) {
  Y[i,j] = (X[i,j] - sum[c](X[i,c] / 512))
         / sqrt(sum[c]((X[i,c] - sum[l](X[i,l] / 512)) * (X[i,c] - sum[l](X[i,l]) / 512)) / 512 + 0.00001)
         * G[j] + B[j];
}""",
        like="layer norm",
    ),
    Entry(
        "scores, factor inside",
        """kernel k(Q: float[256,64], K: float[256,64]) -> (S: float[256,256]) {
  S[i,j] = 0.125 * Q[i,c] * K[j,c];
}""",
        like="scaled scores",
    ),
    Entry(
        "scores, quotient of terms",
        """kernel k(Q: float[256,64], K: float[256,64]) -> (S: float[256,256]) {
  S[i,j] = Q[i,c] * (K[j,c] / 8);
}""",
        like="scaled scores",
    ),
    Entry(
        "Tucker factored",
        """kernel k(G: float[8,8,8], A: float[32,8], B: float[32,8], C: float[32,8]) -> (Y: float[32,32,32]) {
  T<8,8,32>[i,j,c] = G[i,j,l] * C[c,l];
  S<8,32,32>[i,b,c] = T[i,j,c] * B[b,j];
  Y[a,b,c] = S[i,b,c] * A[a,i];
}""",
        like="Tucker product",
    ),
    Entry(
        "chain in two statements",
        """kernel k(A: float[128,16], B: float[16,128], C: float[128,128]) -> (Y: float[128,128]) {
  T<16,128>[l,j] = B[l,m] * C[m,j];
  Y[i,j] = A[i,l] * T[l,j];
}""",
        like="chain of three matrices",
    ),
    Entry(
        "cosine of three statements",
        """kernel k(X: float[1024,128], Z: float[1024,128]) -> (C: float[1024]) {
  P<1024>[i] = X[i,j] * Z[i,j];
  A<1024>[i] = X[i,j] * X[i,j];
  B<1024>[i] = Z[i,j] * Z[i,j];
  C[i] = P[i] / sqrt(A[i] * B[i]);
}""",
        like="cosine similarity",
    ),
    Entry(
        "covariance, quotient outside",
        """kernel k(X: float[512,64]) -> (C: float[64,64]) {
  M<64>[i] = sum[n](X[n,i]) / 512;
  Z<512,64>[n,i] = X[n,i] - M[i];
  C[i,j] = sum[n](Z[n,i] * Z[n,j]) / 511;
}""",
        like="covariance",
    ),
    Entry(
        "attention, quotient outside",
        """kernel k(Q: float[4,128,32], K: float[4,128,32], V: float[4,128,32]) -> (Y: float[4,128,32]) {
  S<4,128,128>[h,i,j] = sum[d](Q[h,i,d] * K[h,j,d]) * 0.1767766953;
  E<4,128,128>[h,i,j] = exp(S[h,i,j] - max[l](S[h,i,l]));
  Y[h,i,d] = sum[j](E[h,i,j] * V[h,j,d]) / sum[j](E[h,i,j]);
}""",
        like="attention",
    ),
)
"""Each is timed beside the kernel that it is like, on the same operands, and has the same results."""
